// Rows moved by a saved permutation, column by column: the gradient of the sort, and its gradient.
#pragma once

#include "job.h"
#include "vector.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

constexpr int64_t kNear = 64, kFar = 16;            // channels of a block of short and of long sets
constexpr int64_t kFew = 8;
constexpr int64_t kNearBytes = 32 << 10;            // a block of short sets stays in the first cache

inline int64_t permute_width(const PermuteJob& job) {
  return job.sets.longest * kNear * job.value_bytes <= kNearBytes ? kNear : kFar;
}

inline int64_t permute_blocks(const PermuteJob& job) {
  return (job.channels + permute_width(job) - 1) / permute_width(job);
}

inline int64_t permute_scratch(const PermuteJob& job) {
  return job.sets.longest * permute_width(job) * job.value_bytes;
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

// All channels of some sets that have few: their rows are close together, no block is needed.
template <class Value, class Index>
void permute_few(const PermuteJob& job, int64_t first, int64_t end) {
  const int64_t channels = job.channels;
  for (int64_t b = first; b < end; ++b) {
    const Set set = job.sets[b];
    const int64_t base = set.first * channels;
    const Value* from = reinterpret_cast<const Value*>(job.from) + base;
    const Index* indices = reinterpret_cast<const Index*>(job.indices) + base;
    Value* to = reinterpret_cast<Value*>(job.to) + base;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t r = 0; r < set.length; ++r) {
        const int64_t i = r * channels + c, other = indices[i] * channels + c;
        if (job.scatter) to[other] = from[i];
        else to[i] = from[other];
      }
    }
    for (int64_t i = set.length * channels; i < set.capacity * channels; ++i) to[i] = 0;
  }
}

template <class Value>
void permute_few(const PermuteJob& job, int64_t first, int64_t end) {
  switch (job.index_bytes) {
    case 1: return permute_few<Value, uint8_t>(job, first, end);
    case 2: return permute_few<Value, int16_t>(job, first, end);
    case 4: return permute_few<Value, int32_t>(job, first, end);
    default: return permute_few<Value, int64_t>(job, first, end);
  }
}

inline int64_t sets_a_task(const PermuteJob& job) {
  const int64_t rows = (1 << 12) / job.channels, sets = rows / (job.sets.longest + 1);
  return sets < 1 ? 1 : sets;
}

template <class Value>
void permute_task(const PermuteJob& job, int64_t task, void* scratch) {
  if (job.channels < kFew) {
    const int64_t sets = sets_a_task(job), first = task * sets, end = first + sets;
    return permute_few<Value>(job, first, end < job.sets.count ? end : job.sets.count);
  }
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
  if (job.channels < kFew) return (job.sets.count + sets_a_task(job) - 1) / sets_a_task(job);
  return job.sets.count * permute_blocks(job);
}

inline void permute_task(const PermuteJob& job, int64_t task, void* scratch) {
  switch (job.value_bytes) {
    case 2: return permute_task<int16_t>(job, task, scratch);
    case 4: return permute_task<int32_t>(job, task, scratch);
    default: return permute_task<int64_t>(job, task, scratch);
  }
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
