// What the files of the C interface share. slicegraph/ops/cpu.py calls it through ctypes; each operator
// takes a pointer to its job and returns a `Status`.
#pragma once

#include "jobs.h"
#include "parallel.h"

#define SLICEGRAPH_API extern "C" __attribute__((visibility("default")))

namespace slicegraph {

// Threads for an amount of work: a thread with a smaller share than this costs more than it saves.
inline int useful_threads(int64_t work, int64_t threads, int64_t share = 1 << 17) {
  const int64_t most = work / share + 1;
  return static_cast<int>(most < threads ? most : threads);
}

template <class T>
void add(int64_t count, const T* __restrict part, T* __restrict sum) {
  for (int64_t c = 0; c < count; ++c) sum[c] += part[c];
}

}  // namespace slicegraph
