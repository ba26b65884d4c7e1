// Dropout by a hash: an entry is dropped if the hash of its position and a seed is small. Nothing is
// stored, and the backward pass computes the same hash. `dropout` in slicegraph/ops/reference.py
// is the same function.
#pragma once

#include "vector.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

template <class U>
SLICEGRAPH_INLINE U scramble(U x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The values at the positions from `position` on, those that are dropped as 0.
template <class T, int kLanes>
SLICEGRAPH_INLINE Vector<T, kLanes> only_kept(Vector<T, kLanes> values, uint64_t seed, uint32_t dropped,
                                              int64_t position) {
  using U = Vector<uint32_t, kLanes>;
  constexpr uint32_t kHigh = 0x9e3779b9u;
  U lane{};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  const U low = lane + static_cast<uint32_t>(position);
  const U carry = low < lane ? U{} + kHigh : U{};
  const U high =
      carry + (static_cast<uint32_t>(seed >> 32) + static_cast<uint32_t>(position >> 32) * kHigh);
  const auto kept = scramble(scramble(low + static_cast<uint32_t>(seed)) ^ high) >= dropped;
  return __builtin_convertvector(kept, decltype(values < values)) ? values : Vector<T, kLanes>{};
}

template <class T>
void dropout_span(const DropoutJob& job, int64_t first, int64_t end) {
  constexpr int kLanes = kVectorBytes / sizeof(T);
  using V = Vector<T, kLanes>;
  const T* x = reinterpret_cast<const T*>(job.x);
  T* out = reinterpret_cast<T*>(job.out);
  const T scale = static_cast<T>(job.kept_scale);
  for (int64_t i = first; i < end; i += kLanes) {
    const V from = load_first<V>(x + i, end - i);
    store_first(out + i, only_kept<T, kLanes>(from * scale, job.seed, job.dropped, i), end - i);
  }
}

constexpr int64_t kDropoutSpan = 8192;

inline Plan dropout_plan(const DropoutJob& job) {
  return {parts_of(job.count, kDropoutSpan), 0, 2 * job.count, {{job.out, job.count * value_bytes(job.dtype)}}};
}
inline void dropout_task(const DropoutJob& job, int64_t task, void*) {
  const int64_t first = task * kDropoutSpan, end = smaller(first + kDropoutSpan, job.count);
  with_float(job.dtype, [&](auto zero) { dropout_span<decltype(zero)>(job, first, end); });
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
