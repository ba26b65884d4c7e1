// Entries that are zeroed at random; what is random about them is a hash of their place and a seed.
#pragma once

#include "job.h"
#include "vector.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

SLICEGRAPH_INLINE uint32_t scramble(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

template <class T>
void dropout_span(const DropoutJob& job, int64_t first, int64_t end) {
  const T* x = reinterpret_cast<const T*>(job.x) + first;
  T* out = reinterpret_cast<T*>(job.out) + first;
  const T scale = static_cast<T>(job.scale);
  const uint32_t low = static_cast<uint32_t>(job.seed) + static_cast<uint32_t>(first);
  const uint32_t high = static_cast<uint32_t>(job.seed >> 32) +
                        static_cast<uint32_t>(first >> 32) * 0x9e3779b9u;
  const uint32_t dropped = job.dropped;
  const int32_t count = static_cast<int32_t>(end - first);
  for (int32_t i = 0; i < count; ++i) {
    const uint32_t hash = scramble(scramble(low + static_cast<uint32_t>(i)) ^ high);
    out[i] = hash >= dropped ? x[i] * scale : T(0);
  }
}

// A span never crosses a multiple of 2^32, where `high` changes.
inline void dropout_task(const DropoutJob& job, int64_t task) {
  const int64_t first = task * kDropoutSpan, next = first + kDropoutSpan;
  const int64_t end = next < job.count ? next : job.count;
  return job.dtype == kFloat32 ? dropout_span<float>(job, first, end)
                               : dropout_span<double>(job, first, end);
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
