// Row numbers from the width of a key to the width they are stored in.
#pragma once

#include "vector.h"

#if defined(__AVX512BW__)
// GCC 12 warns about its own header, where it is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace slicegraph::SLICEGRAPH_LEVEL {

template <class Index, class V>
SLICEGRAPH_INLINE void store_narrow(char* to, V rows) {
  constexpr int kLanes = sizeof(V) / sizeof(rows[0]);
#if defined(__AVX512BW__)
  // The compiler takes the vector apart lane by lane where one instruction narrows it.
  if constexpr (sizeof(Index) == 1 && sizeof(rows[0]) == 2)
    return store(to, _mm512_cvtepi16_epi8((__m512i)rows));
  if constexpr (sizeof(Index) == 1 && sizeof(rows[0]) == 4)
    return store(to, _mm512_cvtepi32_epi8((__m512i)rows));
  if constexpr (sizeof(Index) == 2 && sizeof(rows[0]) == 4)
    return store(to, _mm512_cvtepi32_epi16((__m512i)rows));
#endif
  Index out[kLanes];
  for (int l = 0; l < kLanes; ++l) out[l] = static_cast<Index>(rows[l]);
  std::memcpy(to, out, sizeof out);
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
