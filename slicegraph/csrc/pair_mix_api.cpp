// Products within sets: what slicegraph/ops/backends/cpu_pairs.py calls through ctypes.
#include "api.h"
#include "pair_sets.h"
#include "parallel.h"

namespace slicegraph {

struct PairWords {
  int64_t left, right, out, transposed, outer, dtype;
  int64_t ptr, count, rows, heads, width, length, threads;
};

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_pair_mix(const PairWords* words) {
  const PairWords w = *words;
  PairJob job{{pointer<const void>(w.ptr), kPacked64, w.count, w.rows, 0},
              pointer<const char>(w.left),
              pointer<const char>(w.right),
              pointer<char>(w.out),
              w.heads,
              w.width,
              w.length,
              static_cast<int32_t>(w.dtype),
              w.transposed != 0,
              w.outer};
  if (!measure(job.sets, w.length)) return kBadSizes;
  const int64_t bytes = w.dtype == kFloat64 ? 8 : 4;
  const int64_t squares = w.count * w.heads * w.length * w.length;
  expect_large_writes(job.out, (w.outer ? squares : w.rows * w.heads * w.width) * bytes);
  const int64_t scratch = 2 * w.outer * job.sets.longest * w.width * bytes;
  const int64_t products = w.outer > 1 ? w.outer : 1;
  const int64_t work = (w.rows * products * w.heads * w.width * job.sets.longest + squares) / 8;
  const auto& task = active_kernels().pair_task;
  const bool done = for_each_task(w.count * w.heads, useful_threads(work, w.threads), scratch,
                                  [&](int64_t i, void* memory) { task(job, i, memory); });
  return done ? kDone : kNoMemory;
}
