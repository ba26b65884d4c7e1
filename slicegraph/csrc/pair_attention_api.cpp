// Attention within sets: what slicegraph/ops/backends/cpu_attention.py calls through ctypes.
#include <cmath>

#include "api.h"
#include "pair_sets.h"
#include "parallel.h"

namespace slicegraph {

struct AttentionWords {
  int64_t qkv, bias, totals, g, out, added, of_bias;
  int64_t ptr, count, rows, heads, width, length, seed, dropped, dtype, threads;
  double kept;
};

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_pair_attention(const AttentionWords* words) {
  const AttentionWords w = *words;
  AttentionJob job{{pointer<const void>(w.ptr), kPacked64, w.count, w.rows, 0},
                   pointer<const char>(w.qkv),
                   pointer<const char>(w.bias),
                   pointer<char>(w.totals),
                   pointer<const char>(w.g),
                   pointer<char>(w.out),
                   pointer<const char>(w.added),
                   pointer<char>(w.of_bias),
                   w.heads,
                   w.width,
                   w.length,
                   1 / std::sqrt(static_cast<double>(w.width)),
                   {static_cast<uint64_t>(w.seed), static_cast<uint32_t>(w.dropped), w.kept},
                   static_cast<int32_t>(w.dtype)};
  if (!measure(job.sets, w.length)) return kBadSizes;
  const int64_t bytes = w.dtype == kFloat64 ? 8 : 4, longest = job.sets.longest;
  constexpr int64_t kMostLanes = 8;
  expect_large_writes(job.out, w.rows * w.heads * w.width * (w.g ? 3 : 1) * bytes);
  if (w.g) expect_large_writes(job.of_bias, w.count * w.heads * w.length * w.length * bytes);
  const int64_t scratch = (longest + kMostLanes) * (w.width + (w.g ? 3 : 1) * longest) * bytes;
  const int64_t work = w.rows * w.heads * (w.width + 8) * longest / 4;
  const auto& task = active_kernels().attention_task;
  const bool done = for_each_task(w.count * w.heads, useful_threads(work, w.threads), scratch,
                                  [&](int64_t i, void* memory) { task(job, i, memory); });
  return done ? kDone : kNoMemory;
}
