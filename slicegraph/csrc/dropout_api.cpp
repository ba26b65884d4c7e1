// Dropout: what slicegraph/ops/backends/cpu_dropout.py calls through ctypes.
#include "api.h"
#include "parallel.h"

namespace slicegraph {

struct DropoutWords {
  int64_t x, out, count, seed, dropped, dtype, threads;
  double scale;
};

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_dropout(const DropoutWords* words) {
  const DropoutWords w = *words;
  const DropoutJob job{pointer<const char>(w.x),
                       pointer<char>(w.out),
                       w.count,
                       {static_cast<uint64_t>(w.seed), static_cast<uint32_t>(w.dropped), w.scale},
                       static_cast<int32_t>(w.dtype)};
  expect_large_writes(job.out, w.count * (w.dtype == kFloat64 ? 8 : 4));
  const auto& task = active_kernels().dropout_task;
  const int64_t tasks = (w.count + kDropoutSpan - 1) / kDropoutSpan;
  const bool done = for_each_task(tasks, useful_threads(2 * w.count, w.threads), 0,
                                  [&](int64_t i, void*) { task(job, i); });
  return done ? kDone : kNoMemory;
}
