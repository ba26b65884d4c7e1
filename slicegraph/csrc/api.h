// What the files of the C interface share.
#pragma once

#include "job.h"

#define SLICEGRAPH_API extern "C" __attribute__((visibility("default")))

namespace slicegraph {

// The code of the SIMD level in use.
const Kernels& active_kernels();

// Threads for some work, in comparisons: below this share another one costs more than it brings.
int useful_threads(int64_t work, int64_t threads);

// Fresh memory of this size comes straight from the kernel; without huge pages, touching it costs
// about as much as sorting into it.
void expect_large_writes(void* data, int64_t bytes);

template <class T>
T* pointer(int64_t word) {
  return reinterpret_cast<T*>(word);
}

enum Status : int { kDone = 0, kBadSizes = 1, kNoMemory = 2 };

}  // namespace slicegraph
