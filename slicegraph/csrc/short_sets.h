// Short sets of one channel, between the order of the sets and the order of the rows.
#pragma once

#include <utility>

#include "vector.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

// As many sets of kRows values as a register has lanes: kRows registers either way. Every register of
// the one side is put together from all registers of the other.
template <class T, int kLanes, int kRows>
class ShortSets {
 public:
  // rows[r * width + i] = sets[i * kRows + r]
  static SLICEGRAPH_INLINE void to_rows(const T* sets, T* rows, int64_t width) {
    V in[kRows];
    for (int v = 0; v < kRows; ++v) in[v] = load<V>(sets + v * kLanes);
    put<true>(in, rows, width, std::make_integer_sequence<int, kRows>());
  }
  // sets[i * kRows + r] = rows[r * width + i]
  static SLICEGRAPH_INLINE void to_sets(const T* rows, T* sets, int64_t width) {
    V in[kRows];
    for (int r = 0; r < kRows; ++r) in[r] = load<V>(rows + r * width);
    put<false>(in, sets, kLanes, std::make_integer_sequence<int, kRows>());
  }

 private:
  using V = Vector<T, kLanes>;
  using Lanes = std::make_integer_sequence<int, kLanes>;

  template <bool kToRows, int... k>
  static SLICEGRAPH_INLINE void put(const V (&in)[kRows], T* out, int64_t width,
                                    std::integer_sequence<int, k...>) {
    (store(out + k * width, gather<kToRows, k, 0>(in[0], in, Lanes())), ...);
  }

  // Lane i of register `kOut`, from register `kIn` on; what comes from earlier ones is in `found`.
  template <bool kToRows, int kOut, int kIn, int... i>
  static SLICEGRAPH_INLINE V gather(V found, const V (&in)[kRows],
                                    std::integer_sequence<int, i...> lanes) {
    if constexpr (kIn == kRows) {
      return found;
    } else {
      return gather<kToRows, kOut, kIn + 1>(
          shuffle<T, kLanes, (source(kToRows, kOut, i) == kIn ? kLanes + lane(kToRows, kOut, i) : i)...>(
              found, in[kIn]),
          in, lanes);
    }
  }
  static constexpr int source(bool to_rows, int out, int i) {
    return to_rows ? (i * kRows + out) / kLanes : (out * kLanes + i) % kRows;
  }
  static constexpr int lane(bool to_rows, int out, int i) {
    return to_rows ? (i * kRows + out) % kLanes : (out * kLanes + i) / kRows;
  }
};

}  // namespace slicegraph::SLICEGRAPH_LEVEL
