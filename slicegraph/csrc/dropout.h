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

// Whether the entries from `position` on are kept: a lane is all ones, or 0.
template <int kLanes>
SLICEGRAPH_INLINE auto kept_from(uint64_t seed, uint32_t dropped, int64_t position) {
  using U = Vector<uint32_t, kLanes>;
  constexpr uint32_t kHigh = 0x9e3779b9u;
  U lane{};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  const U low = lane + static_cast<uint32_t>(position);
  const U carry = low < lane ? U{} + kHigh : U{};
  const U high =
      carry + (static_cast<uint32_t>(seed >> 32) + static_cast<uint32_t>(position >> 32) * kHigh);
  return scramble(scramble(low + static_cast<uint32_t>(seed)) ^ high) >= dropped;
}

template <class T>
void dropout_span(const DropoutJob& job, int64_t first, int64_t end) {
  const T* x = reinterpret_cast<const T*>(job.x) + first;
  T* out = reinterpret_cast<T*>(job.out) + first;
  const T scale = static_cast<T>(job.kept_scale);
  const uint32_t low = static_cast<uint32_t>(job.seed) + static_cast<uint32_t>(first);
  const uint32_t high =
      static_cast<uint32_t>(job.seed >> 32) + static_cast<uint32_t>(first >> 32) * 0x9e3779b9u;
  const uint32_t dropped = static_cast<uint32_t>(job.dropped);
  for (int32_t i = 0; i < static_cast<int32_t>(end - first); ++i) {
    const uint32_t hash = scramble(scramble(low + static_cast<uint32_t>(i)) ^ high);
    out[i] = hash >= dropped ? x[i] * scale : T(0);
  }
}

// A span never crosses a multiple of 2^32, where `high` changes.
constexpr int64_t kDropoutSpan = 8192;

inline Plan dropout_plan(const DropoutJob& job) {
  return {parts_of(job.count, kDropoutSpan), 0, 2 * job.count, {{job.out, job.count * value_bytes(job.dtype)}}};
}
inline void dropout_task(const DropoutJob& job, int64_t task, void*) {
  const int64_t first = task * kDropoutSpan, end = smaller(first + kDropoutSpan, job.count);
  with_float(job.dtype, [&](auto zero) { dropout_span<decltype(zero)>(job, first, end); });
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
