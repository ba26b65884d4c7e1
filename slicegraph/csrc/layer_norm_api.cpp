// Layer norm: what slicegraph/ops/backends/cpu_rows.py calls through ctypes.
#include "api.h"
#include "parallel.h"

namespace slicegraph {

struct NormWords {
  int64_t x, scale, shift, g, y, of_x, of_scale, rows, width, dtype, threads;
  double eps;
};

// of_scale [2, width], with that of shift, is the sum over all tasks, in their order.
template <class T>
void add_up(const NormJob& job, int64_t tasks, int64_t of_scale) {
  const T* sums = reinterpret_cast<const T*>(job.sums);
  T* to = pointer<T>(of_scale);
  for (int64_t c = 0; c < 2 * job.width; ++c) to[c] = 0;
  for (int64_t task = 0; task < tasks; ++task, sums += 2 * job.width)
    for (int64_t c = 0; c < 2 * job.width; ++c) to[c] += sums[c];
}

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_layer_norm(const NormWords* words) {
  const NormWords w = *words;
  const int64_t bytes = w.dtype == kFloat64 ? 8 : 4, tasks = (w.rows + kNormRows - 1) / kNormRows;
  thread_local Scratch memory;
  char* sums = static_cast<char*>(w.g ? memory.get(tasks * 2 * w.width * bytes + 1) : nullptr);
  if (w.g && !sums) return kNoMemory;
  const NormJob job{pointer<const char>(w.x),
                    pointer<const char>(w.scale),
                    pointer<const char>(w.shift),
                    pointer<const char>(w.g),
                    pointer<char>(w.y),
                    pointer<char>(w.of_x),
                    sums,
                    w.rows,
                    w.width,
                    w.eps,
                    static_cast<int32_t>(w.dtype)};
  expect_large_writes(job.y, w.rows * w.width * bytes);
  const auto& task = active_kernels().norm_task;
  const bool done = for_each_task(tasks, useful_threads(4 * w.rows * w.width, w.threads), 0,
                                  [&](int64_t i, void*) { task(job, i); });
  if (done && w.g) {
    const auto add = bytes == 4 ? add_up<float> : add_up<double>;
    add(job, tasks, w.of_scale);
  }
  memory.trim();
  return done ? kDone : kNoMemory;
}
