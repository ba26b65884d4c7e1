// The max exchange: each column's first maximum changes places with its first row.
#pragma once

#include "job.h"
#include "keys.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

constexpr int64_t kExchangeChannels = 64;

inline int64_t exchange_blocks(const ExchangeJob& job) {
  return (job.channels + kExchangeChannels - 1) / kExchangeChannels;
}

template <class Bits>
void find_first_maxima(const Bits* x, int64_t n, int64_t stride, int64_t width, Bits infinity,
                       int64_t* where) {
  Bits best[kExchangeChannels];
  for (int64_t c = 0; c < width; ++c) best[c] = scalar_exact_key(x[c], infinity), where[c] = 0;
  for (int64_t r = 1; r < n; ++r) {
    for (int64_t c = 0; c < width; ++c) {
      const Bits key = scalar_exact_key(x[r * stride + c], infinity);
      where[c] = key > best[c] ? r : where[c];
      best[c] = key > best[c] ? key : best[c];
    }
  }
}

template <class Bits>
void exchange(const ExchangeJob& job, int64_t task, Bits infinity) {
  const int64_t blocks = exchange_blocks(job), b = task / blocks, stride = job.channels;
  const int64_t c0 = task % blocks * kExchangeChannels, rest = stride - c0;
  const int64_t width = rest < kExchangeChannels ? rest : kExchangeChannels;
  const Set set = job.sets[b];
  const Bits* x = reinterpret_cast<const Bits*>(job.x) + set.first * stride + c0;
  Bits* to = reinterpret_cast<Bits*>(job.values) + set.first * stride + c0;
  int64_t* where = job.where + b * stride + c0;
  if (set.length == 0) {
    if (job.search) std::memset(where, 0, width * sizeof(int64_t));
  } else if (job.search) {
    find_first_maxima(x, set.length, stride, width, infinity, where);
  }
  for (int64_t r = 0; r < set.length; ++r)
    std::memcpy(to + r * stride, x + r * stride, width * sizeof(Bits));
  for (int64_t r = set.length; r < set.capacity; ++r)
    std::memset(to + r * stride, 0, width * sizeof(Bits));
  for (int64_t c = 0; set.length > 0 && c < width; ++c) {
    to[c] = x[where[c] * stride + c];
    to[where[c] * stride + c] = x[c];
  }
}

inline int64_t exchange_tasks(const ExchangeJob& job) {
  return job.sets.count * exchange_blocks(job);
}

inline void exchange_task(const ExchangeJob& job, int64_t task) {
  switch (job.dtype) {
    case kFloat32: return exchange<int32_t>(job, task, 0x7f800000);
    case kFloat64: return exchange<int64_t>(job, task, 0x7ff0000000000000);
    case kBfloat16: return exchange<int16_t>(job, task, 0x7f80);
    default: return exchange<int16_t>(job, task, 0x7c00);
  }
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
