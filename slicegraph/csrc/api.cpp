// SIMD levels, threads, and the operators whose kernels are compiled once for each level.
#include "api.h"

#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace slicegraph {

namespace baseline {
extern const Kernels kernels;
}
#if defined(SLICEGRAPH_X86_LEVELS) && !defined(SLICEGRAPH_WITHOUT_AVX2)
namespace avx2 {
extern const Kernels kernels;
}
#endif
#if defined(SLICEGRAPH_X86_LEVELS) && !defined(SLICEGRAPH_WITHOUT_AVX512)
namespace avx512 {
extern const Kernels kernels;
}
#endif

static const Kernels* best_kernels() {
#if defined(SLICEGRAPH_X86_LEVELS)
  __builtin_cpu_init();
#if !defined(SLICEGRAPH_WITHOUT_AVX512)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return &avx512::kernels;
#endif
#if !defined(SLICEGRAPH_WITHOUT_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
      __builtin_cpu_supports("fma"))
    return &avx2::kernels;
#endif
#endif
  return &baseline::kernels;
}

static std::atomic<const Kernels*> active{best_kernels()};

static int64_t log2_ceil(int64_t n) {
  int64_t log = 1;
  while ((int64_t(1) << log) < n) ++log;
  return log;
}

// Finds the longest set. False if a set reaches outside its rows, or is longer than `most`.
static bool measure(Sets& sets, int64_t most = INT64_MAX) {
  sets.longest = sets.rows;
  if (sets.layout == kDense) return true;
  if (sets.packed() && (sets.size(0) != 0 || sets.size(sets.count) != sets.rows)) return false;
  sets.longest = 0;
  for (int64_t b = 0; b < sets.count; ++b) {
    const int64_t n = sets[b].length;
    if (n < 0 || n > most || n > sets.rows) return false;
    if (n > sets.longest) sets.longest = n;
  }
  return true;
}

// Fresh memory of this size comes straight from the system; without huge pages, touching it costs
// about as much as sorting into it.
static void expect_large_writes(void* data, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr int64_t kFresh = int64_t(32) << 20;
  constexpr uintptr_t kPage = uintptr_t(2) << 20;
  if (bytes < kFresh) return;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kPage - 1);
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API const char* slicegraph_simd_level() { return active.load()->name; }

SLICEGRAPH_API void slicegraph_borrow_threads(void* gomp_parallel) {
  borrow_threads(reinterpret_cast<GompParallel>(gomp_parallel));
}

// Chooses a SIMD level by its number in `SIMD_LEVELS` of slicegraph/ops/cpu.py, if this machine has it.
SLICEGRAPH_API int slicegraph_use_simd_level(int level) {
  const Kernels* best = best_kernels();
  const Kernels* levels[] = {&baseline::kernels, nullptr, nullptr};
#if defined(SLICEGRAPH_X86_LEVELS) && !defined(SLICEGRAPH_WITHOUT_AVX2)
  if (best != &baseline::kernels) levels[1] = &avx2::kernels;
#endif
#if defined(SLICEGRAPH_X86_LEVELS) && !defined(SLICEGRAPH_WITHOUT_AVX512)
  if (best == &avx512::kernels) levels[2] = best;
#endif
  if (level < 0 || level > 2 || !levels[level]) return 1;
  active = levels[level];
  return 0;
}

// The size of the job that an operator takes, or 0 if there is no such operator.
SLICEGRAPH_API int64_t slicegraph_job_bytes(const char* operator_name) {
  static constexpr struct {
    const char* name;
    int64_t bytes;
  } kJobs[] = {
      {"column_sort", sizeof(SortJob)},         {"column_permute", sizeof(PermuteJob)},
      {"max_exchange", sizeof(ExchangeJob)},    {"pair_mix", sizeof(PairJob)},
      {"pair_attention", sizeof(AttentionJob)}, {"edge_sum", sizeof(EdgeJob)},
      {"structural_bias", sizeof(BiasJob)},     {"graph_offsets", sizeof(PathsJob)},
      {"shortest_paths", sizeof(PathsJob)},     {"dropout", sizeof(DropoutJob)},
      {"slice_attention", sizeof(SliceJob)},
  };
  for (const auto& job : kJobs)
    if (std::strcmp(job.name, operator_name) == 0) return job.bytes;
  return 0;
}

SLICEGRAPH_API int slicegraph_column_sort(const SortJob* packed) {
  SortJob job = *packed;
  const Kernels& kernels = *active.load();
  if (!measure(job.sets)) return kBadInput;
  const int64_t elements = job.sets.all_rows() * job.channels;
  if (elements == 0) return kDone;
  expect_large_writes(job.values, elements * value_bytes(job.dtype));
  expect_large_writes(job.indices, elements * job.index_bytes);
  // Few columns of many rows are sorted one by one, and each comparison costs more.
  const int64_t cost = job.channels < 8 && job.sets.longest > 512 ? 4 : 1;
  const int threads = useful_threads(cost * elements * log2_ceil(job.sets.longest), job.threads);
  return for_each_task(kernels.sort_tasks(job), threads, kernels.sort_scratch(job),
                       [&](int64_t task, void* scratch) { kernels.sort(job, task, scratch); });
}

SLICEGRAPH_API int slicegraph_column_permute(const PermuteJob* packed) {
  PermuteJob job = *packed;
  const Kernels& kernels = *active.load();
  if (!measure(job.sets)) return kBadInput;
  const int64_t elements = job.sets.all_rows() * job.channels;
  if (elements == 0) return kDone;
  expect_large_writes(job.to, elements * job.value_bytes);
  const int threads = useful_threads(2 * elements, job.threads);
  return for_each_task(kernels.permute_tasks(job), threads, kernels.permute_scratch(job),
                       [&](int64_t task, void* scratch) { kernels.permute(job, task, scratch); });
}

SLICEGRAPH_API int slicegraph_max_exchange(const ExchangeJob* packed) {
  ExchangeJob job = *packed;
  const Kernels& kernels = *active.load();
  if (!measure(job.sets)) return kBadInput;
  const int64_t elements = job.sets.all_rows() * job.channels;
  if (job.channels == 0) return kDone;
  expect_large_writes(job.values, elements * value_bytes(job.dtype));
  return for_each_task(kernels.exchange_tasks(job), useful_threads(4 * elements, job.threads), 0,
                       [&](int64_t task, void*) { kernels.exchange(job, task); });
}

SLICEGRAPH_API int slicegraph_slice_attention(const SliceJob* packed) {
  SliceJob job = *packed;
  const Kernels& kernels = *active.load();
  if (!measure(job.sets)) return kBadInput;
  const int64_t elements = job.sets.all_rows() * job.heads * job.width;
  if (job.heads * job.width == 0) return kDone;
  expect_large_writes(job.out, elements * value_bytes(job.dtype));
  const SliceTasks tasks = kernels.slice_tasks(job);
  return for_each_task(tasks.count, useful_threads(8 * elements, job.threads), tasks.scratch,
                       [&](int64_t task, void* scratch) { kernels.slice_task(job, task, scratch); });
}

SLICEGRAPH_API int slicegraph_pair_mix(const PairJob* packed) {
  PairJob job = *packed;
  const Kernels& kernels = *active.load();
  if (!measure(job.sets, job.length)) return kBadInput;
  const int64_t bytes = value_bytes(job.dtype), longest = job.sets.longest;
  const int64_t squares = job.sets.count * job.heads * job.length * job.length;
  const int64_t entries = job.sets.rows * job.heads * job.width;
  expect_large_writes(job.out, (job.outer ? squares : entries) * bytes);
  const int64_t scratch = job.outer * longest * job.width * bytes;
  const int64_t work = (entries * longest + squares) / 8;
  return for_each_task(job.sets.count * job.heads, useful_threads(work, job.threads), scratch,
                       [&](int64_t task, void* memory) { kernels.pair_task(job, task, memory); });
}

SLICEGRAPH_API int slicegraph_pair_attention(const AttentionJob* packed) {
  AttentionJob job = *packed;
  const Kernels& kernels = *active.load();
  if (!measure(job.sets, job.length)) return kBadInput;
  const int64_t bytes = value_bytes(job.dtype), longest = job.sets.longest;
  const int64_t squares = job.sets.count * job.heads * job.length * job.length;
  const int64_t row = job.heads * job.width, factor = job.grad_out ? 3 : 1;
  constexpr int64_t kMostLanes = 8;
  expect_large_writes(job.out, job.sets.rows * row * factor * bytes);
  if (job.grad_out) expect_large_writes(job.grad_bias, squares * bytes);
  const int64_t scratch = (longest + kMostLanes) * (job.width + factor * longest) * bytes;
  const int64_t work = job.sets.rows * job.heads * (job.width + 8) * longest / 4;
  return for_each_task(
      job.sets.count * job.heads, useful_threads(work, job.threads), scratch,
      [&](int64_t task, void* memory) { kernels.attention_task(job, task, memory); });
}

SLICEGRAPH_API int slicegraph_dropout(const DropoutJob* packed) {
  const DropoutJob job = *packed;
  const Kernels& kernels = *active.load();
  expect_large_writes(job.out, job.count * value_bytes(job.dtype));
  return for_each_task((job.count + kDropoutSpan - 1) / kDropoutSpan,
                       useful_threads(2 * job.count, job.threads), 0,
                       [&](int64_t task, void*) { kernels.dropout_task(job, task); });
}
