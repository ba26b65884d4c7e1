// Rows moved column by column: by a saved permutation (the gradient of the sort, and its gradient), and
// the swap of each column's first maximum with its first row.
#pragma once

#include "jobs.h"
#include "keys.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

constexpr int64_t kNear = 64, kFar = 16;  // channels of a block of short and of long sets
constexpr int64_t kNearBytes = 32 << 10;  // a block of short sets stays in the first cache
constexpr int64_t kFew = 128;             // rows of fewer channels are moved where they are

inline int64_t permute_width(const PermuteJob& job) {
  return job.sets.longest * kNear * job.value_bytes <= kNearBytes ? kNear : kFar;
}

inline int64_t permute_blocks(const PermuteJob& job) {
  return (job.channels + permute_width(job) - 1) / permute_width(job);
}

inline int64_t permute_scratch(const PermuteJob& job) {
  return job.channels < kFew ? 0 : job.sets.longest * permute_width(job) * job.value_bytes;
}

// The random side of the traffic goes to `block`, which is contiguous: rows of the tensor itself are
// a power of two apart as often as not, and would fall on few lines of the cache.
template <int64_t kWidth, class Value, class Index>
void permute(const PermuteJob& job, const Set& set, int64_t c0, int64_t width, Value* block) {
  const int64_t channels = job.channels, base = set.first * channels + c0;
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

template <int64_t kWidth, class Value>
void permute(const PermuteJob& job, const Set& set, int64_t c0, int64_t width, Value* block) {
  switch (job.index_bytes) {
    case 1: return permute<kWidth, Value, uint8_t>(job, set, c0, width, block);
    case 2: return permute<kWidth, Value, int16_t>(job, set, c0, width, block);
    case 4: return permute<kWidth, Value, int32_t>(job, set, c0, width, block);
    default: return permute<kWidth, Value, int64_t>(job, set, c0, width, block);
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
        parts(rows > job.sets.longest ? 1 : (job.sets.longest + rows - 1) / rows) {}

  int64_t tasks(const PermuteJob& job) const { return (job.sets.count + sets - 1) / sets * parts; }

  template <bool kScatter, class Value, class Index>
  void run(const PermuteJob& job, int64_t task) const {
    const Value* from = reinterpret_cast<const Value*>(job.from);
    const Index* indices = reinterpret_cast<const Index*>(job.indices);
    Value* to = reinterpret_cast<Value*>(job.to);
    const int64_t channels = job.channels, first = task / parts * sets, part = task % parts;
    const int64_t last = first + sets < job.sets.count ? first + sets : job.sets.count;
    const bool whole = job.sets.layout == kDense && parts == 1;
    for (int64_t b = first; whole && b < last; ++b) {
      const int64_t base = b * job.sets.rows * channels;
      permute_rows<kScatter>(from + base, indices + base, to + base, channels, 0, job.sets.rows);
    }
    for (int64_t b = first; !whole && b < last; ++b) {
      const Set set = job.sets[b];
      const int64_t base = set.first * channels, begin = parts > 1 ? part * rows : 0;
      const int64_t end = parts > 1 && begin + rows < set.capacity ? begin + rows : set.capacity;
      const int64_t real = set.length < end ? set.length : end;
      permute_rows<kScatter>(from + base, indices + base, to + base, channels, begin, real);
      const int64_t padding = real > begin ? real : begin;
      for (int64_t i = padding * channels; i < end * channels; ++i) to[base + i] = 0;
    }
  }

  template <class Value, class Index>
  void run(const PermuteJob& job, int64_t task) const {
    return job.scatter ? run<true, Value, Index>(job, task) : run<false, Value, Index>(job, task);
  }

  template <class Value>
  void run(const PermuteJob& job, int64_t task) const {
    switch (job.index_bytes) {
      case 1: return run<Value, uint8_t>(job, task);
      case 2: return run<Value, int16_t>(job, task);
      case 4: return run<Value, int32_t>(job, task);
      default: return run<Value, int64_t>(job, task);
    }
  }
};

template <class Value>
void permute_task(const PermuteJob& job, int64_t task, void* scratch) {
  if (job.channels < kFew) return FewChannels(job).run<Value>(job, task);
  const int64_t blocks = permute_blocks(job), even = (job.channels + blocks - 1) / blocks;
  const int64_t c0 = task % blocks * even;
  const int64_t width = job.channels - c0 < even ? job.channels - c0 : even;
  const Set set = job.sets[task / blocks];
  if (permute_width(job) == kNear) {
    permute<kNear>(job, set, c0, width, static_cast<Value*>(scratch));
  } else {
    permute<kFar>(job, set, c0, width, static_cast<Value*>(scratch));
  }
}

inline int64_t permute_tasks(const PermuteJob& job) {
  if (job.channels < kFew) return FewChannels(job).tasks(job);
  return job.sets.count * permute_blocks(job);
}

inline void permute_task(const PermuteJob& job, int64_t task, void* scratch) {
  switch (job.value_bytes) {
    case 2: return permute_task<int16_t>(job, task, scratch);
    case 4: return permute_task<int32_t>(job, task, scratch);
    default: return permute_task<int64_t>(job, task, scratch);
  }
}

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
