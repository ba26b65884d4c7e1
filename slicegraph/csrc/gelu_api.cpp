// GELU: what slicegraph/ops/backends/cpu_rows.py calls through ctypes.
#include "api.h"
#include "parallel.h"

namespace slicegraph {

struct GeluWords {
  int64_t x, g, y, of_x, count, threads;
};

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_gelu(const GeluWords* words) {
  const GeluWords w = *words;
  const GeluJob job{pointer<const float>(w.x), pointer<const float>(w.g), pointer<float>(w.y),
                    pointer<float>(w.of_x), w.count};
  expect_large_writes(job.y, w.count * 4);
  const auto& task = active_kernels().gelu_task;
  const int64_t tasks = (w.count + kGeluSpan - 1) / kGeluSpan;
  const bool done = for_each_task(tasks, useful_threads(8 * w.count, w.threads), 0,
                                  [&](int64_t i, void*) { task(job, i); });
  return done ? kDone : kNoMemory;
}
