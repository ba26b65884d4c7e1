// Rows moved column by column: by a saved permutation (the gradient of the sort, and its gradient), and
// the swap of each column's first maximum with its first row.
#pragma once

#include "keys.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

constexpr int64_t kNear = 64, kFar = 16;  // channels of a block of short and of long sets
constexpr int64_t kNearBytes = 32 << 10;  // a block of short sets stays in the first cache
constexpr int64_t kFew = 128;             // rows of fewer channels are moved where they are

inline int64_t permute_width(const PermuteJob& job) {
  return job.sets.longest * kNear * job.value_bytes <= kNearBytes ? kNear : kFar;
}

// The random side of the traffic goes to `block`, which is contiguous: rows of the tensor itself are
// a power of two apart as often as not, and would fall on few lines of the cache.
template <int64_t kWidth, class Value, class Index>
void permute(const PermuteJob& job, int64_t task, void* scratch) {
  const int64_t channels = job.channels, blocks = parts_of(channels, kWidth);
  const int64_t even = parts_of(channels, blocks), c0 = task % blocks * even;
  const int64_t width = smaller(channels - c0, even);
  const Set set = job.sets[task / blocks];
  const int64_t base = set.first * channels + c0;
  Value* block = static_cast<Value*>(scratch);
  const Value* from = reinterpret_cast<const Value*>(job.from) + base;
  const Index* indices = reinterpret_cast<const Index*>(job.indices) + base;
  Value* to = reinterpret_cast<Value*>(job.to) + base;
  const size_t bytes = width * sizeof(Value);
  for (int64_t r = set.length; r < set.capacity; ++r) std::memset(to + r * channels, 0, bytes);
  for (int64_t r = 0; r < set.length; ++r) {
    const int64_t row = r * channels, ahead = row + kRowsAhead * channels;
    expect_read(from + ahead, bytes);
    expect_read(indices + ahead, width * sizeof(Index));
    expect_write(to + row, bytes);
    if (job.scatter) {
      for (int64_t c = 0; c < width; ++c) block[indices[row + c] * kWidth + c] = from[row + c];
    } else {
      std::memcpy(block + r * kWidth, from + row, bytes);
    }
  }
  for (int64_t r = 0; r < set.length; ++r) {
    const int64_t row = r * channels;
    if (job.scatter) {
      std::memcpy(to + row, block + r * kWidth, bytes);
    } else {
      for (int64_t c = 0; c < width; ++c) to[row + c] = block[indices[row + c] * kWidth + c];
    }
  }
}

// All channels of rows that are close together: no block is needed. The pointers are to the set.
template <bool kScatter, class Value, class Index>
SLICEGRAPH_INLINE void permute_rows(const Value* from, const Index* indices, Value* to, int64_t channels,
                                    int64_t first, int64_t end) {
  const auto move = [&](int64_t i, int64_t c) {
    const int64_t other = indices[i] * channels + c;
    if constexpr (kScatter) to[other] = from[i];
    else to[i] = from[other];
  };
  if (channels == 1) {
    for (int64_t r = first; r < end; ++r) move(r, 0);
  } else {
    for (int64_t r = first; r < end; ++r)
      for (int64_t c = 0; c < channels; ++c) move(r * channels + c, c);
  }
}

// A task is some short sets, or some rows of a long one.
struct FewChannels {
  int64_t rows, sets, parts;

  explicit FewChannels(const PermuteJob& job)
      : rows((1 << 12) / job.channels),
        sets(rows > job.sets.longest ? rows / (job.sets.longest + 1) : 1),
        parts(rows > job.sets.longest ? 1 : parts_of(job.sets.longest, rows)) {}

  int64_t tasks(const PermuteJob& job) const { return parts_of(job.sets.count, sets) * parts; }

  template <bool kScatter, class Value, class Index>
  void run(const PermuteJob& job, int64_t task) const {
    const Value* from = reinterpret_cast<const Value*>(job.from);
    const Index* indices = reinterpret_cast<const Index*>(job.indices);
    Value* to = reinterpret_cast<Value*>(job.to);
    const int64_t channels = job.channels, first = task / parts * sets, part = task % parts;
    const int64_t last = smaller(first + sets, job.sets.count);
    const bool whole = job.sets.layout == kDense && parts == 1;
    for (int64_t b = first; whole && b < last; ++b) {
      const int64_t base = b * job.sets.rows * channels;
      permute_rows<kScatter>(from + base, indices + base, to + base, channels, 0, job.sets.rows);
    }
    for (int64_t b = first; !whole && b < last; ++b) {
      const Set set = job.sets[b];
      const int64_t base = set.first * channels, begin = parts > 1 ? part * rows : 0;
      const int64_t end = parts > 1 ? smaller(begin + rows, set.capacity) : set.capacity;
      const int64_t real = smaller(set.length, end);
      permute_rows<kScatter>(from + base, indices + base, to + base, channels, begin, real);
      for (int64_t i = larger(real, begin) * channels; i < end * channels; ++i) to[base + i] = 0;
    }
  }
};

inline Plan permute_plan(const PermuteJob& job) {
  const int64_t elements = job.sets.all_rows() * job.channels, width = permute_width(job);
  if (elements == 0) return {};
  const bool few = job.channels < kFew;
  return {few ? FewChannels(job).tasks(job) : job.sets.count * parts_of(job.channels, width),
          few ? 0 : job.sets.longest * width * job.value_bytes, 2 * elements,
          {{job.to, elements * job.value_bytes}}};
}

inline void permute_task(const PermuteJob& job, int64_t task, void* scratch) {
  const auto run = [&](auto value) {
    with_index(job.index_bytes, [&](auto index) {
      using Value = decltype(value);
      using Index = decltype(index);
      if (job.channels < kFew)
        return job.scatter ? FewChannels(job).run<true, Value, Index>(job, task)
                           : FewChannels(job).run<false, Value, Index>(job, task);
      return permute_width(job) == kNear ? permute<kNear, Value, Index>(job, task, scratch)
                                         : permute<kFar, Value, Index>(job, task, scratch);
    });
  };
  job.value_bytes == 2 ? run(int16_t()) : job.value_bytes == 4 ? run(int32_t()) : run(int64_t());
}

constexpr int64_t kExchangeChannels = 64;

template <class Bits>
void find_first_maxima(const Bits* x, int64_t n, int64_t stride, int64_t width, Bits infinity,
                       int64_t* where) {
  Bits best[kExchangeChannels];
  for (int64_t c = 0; c < width; ++c) best[c] = exact_key(x[c], infinity);
  for (int64_t r = 1; r < n; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const Bits key = exact_key(x[r * stride + c], infinity);
      where[c] = key > best[c] ? r : where[c];
      best[c] = key > best[c] ? key : best[c];
    }
}

template <class Bits>
void exchange(const ExchangeJob& job, int64_t task, Bits infinity) {
  const int64_t stride = job.channels, blocks = parts_of(stride, kExchangeChannels), b = task / blocks;
  const int64_t c0 = task % blocks * kExchangeChannels, width = smaller(stride - c0, kExchangeChannels);
  const Set set = job.sets[b];
  const Bits* x = reinterpret_cast<const Bits*>(job.x) + set.first * stride + c0;
  Bits* to = reinterpret_cast<Bits*>(job.values) + set.first * stride + c0;
  int64_t* where = job.where + b * stride + c0;
  if (job.search) std::memset(where, 0, width * sizeof(int64_t));
  if (job.search && set.length > 0) find_first_maxima(x, set.length, stride, width, infinity, where);
  for (int64_t r = 0; r < set.capacity; ++r)
    if (r < set.length) std::memcpy(to + r * stride, x + r * stride, width * sizeof(Bits));
    else std::memset(to + r * stride, 0, width * sizeof(Bits));
  for (int64_t c = 0; set.length > 0 && c < width; ++c) {
    to[c] = x[where[c] * stride + c];
    to[where[c] * stride + c] = x[c];
  }
}

inline Plan exchange_plan(const ExchangeJob& job) {
  const int64_t elements = job.sets.all_rows() * job.channels;
  return {job.sets.count * parts_of(job.channels, kExchangeChannels), 0, 4 * elements,
          {{job.values, elements * value_bytes(job.dtype)}}};
}

inline void exchange_task(const ExchangeJob& job, int64_t task, void*) {
  switch (job.dtype) {
    case kFloat32: return exchange<int32_t>(job, task, 0x7f800000);
    case kFloat64: return exchange<int64_t>(job, task, 0x7ff0000000000000);
    case kBfloat16: return exchange<int16_t>(job, task, 0x7f80);
    default: return exchange<int16_t>(job, task, 0x7c00);
  }
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
