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
  if (width < kFew) {  // a column at a time: the rows are close together
    for (int64_t c = 0; c < width; ++c) {
      for (int64_t i = c; i < set.length * channels; i += channels) {
        const int64_t other = indices[i] * channels + c;
        if (job.scatter) to[other] = from[i];
        else to[i] = from[other];
      }
    }
    return;
  }
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

template <class Value>
void permute_block(const PermuteJob& job, int64_t task, void* scratch) {
  const int64_t blocks = permute_blocks(job), most = permute_width(job), c0 = task % blocks * most;
  const int64_t width = job.channels - c0 < most ? job.channels - c0 : most;
  const Set set = job.sets[task / blocks];
  if (most == kNear) {
    permute<kNear>(job, set, c0, width, static_cast<Value*>(scratch));
  } else {
    permute<kFar>(job, set, c0, width, static_cast<Value*>(scratch));
  }
}

inline int64_t permute_tasks(const PermuteJob& job) { return job.sets.count * permute_blocks(job); }

inline void permute_task(const PermuteJob& job, int64_t task, void* scratch) {
  switch (job.value_bytes) {
    case 2: return permute_block<int16_t>(job, task, scratch);
    case 4: return permute_block<int32_t>(job, task, scratch);
    default: return permute_block<int64_t>(job, task, scratch);
  }
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
