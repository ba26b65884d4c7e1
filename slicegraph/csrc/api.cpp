// SIMD levels, threads, and the operators whose kernels are compiled once for each level.
// slicegraph/ops/cpu.py calls the C interface through ctypes; each operator takes a pointer to its job
// and returns a `Status`.
#include <cstring>

#include "parallel.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace slicegraph {

namespace baseline {
extern const Kernels kernels;
}
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

// The kernels of a level by its number in `SIMD_LEVELS` of slicegraph/ops/cpu.py; null if this machine
// or this library does not have them.
static const Kernels* kernels_of(int level) {
#if defined(SLICEGRAPH_X86_LEVELS)
  __builtin_cpu_init();
#if !defined(SLICEGRAPH_WITHOUT_AVX512)
  if (level == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return &avx512::kernels;
#endif
#if !defined(SLICEGRAPH_WITHOUT_AVX2)
  if (level == 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
      __builtin_cpu_supports("fma"))
    return &avx2::kernels;
#endif
#endif
  return level == 0 ? &baseline::kernels : nullptr;
}

static const Kernels* best_kernels() {
  int level = 2;
  while (!kernels_of(level)) --level;
  return kernels_of(level);
}

static std::atomic<const Kernels*> active{best_kernels()};

// Finds the longest set. False if a set reaches outside its rows, or is longer than `most`.
static bool measure(Sets& sets, int64_t most) {
  sets.longest = sets.rows;
  if (sets.layout == kDense) return true;
  if (sets.packed() && (sets.sizes[0] != 0 || sets.sizes[sets.count] != sets.rows)) return false;
  sets.longest = 0;
  for (int64_t b = 0; b < sets.count; ++b) {
    const int64_t n = sets[b].length;
    if (n < 0 || n > most || n > sets.rows) return false;
    sets.longest = larger(n, sets.longest);
  }
  return true;
}

// Fresh memory of this size comes straight from the system; without huge pages, touching it costs
// about as much as sorting into it.
static void expect_large_writes([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr int64_t kFresh = int64_t(32) << 20;
  constexpr uintptr_t kPage = uintptr_t(2) << 20;
  if (bytes < kFresh) return;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kPage - 1);
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

template <class Job>
Status run(const Job& job, Kernel<Job> Kernels::* member) {
  const Kernel<Job> kernel = active.load()->*member;
  const Plan plan = kernel.plan(job);
  for (const auto& output : plan.outputs) expect_large_writes(output.data, output.bytes);
  return for_each_task(plan.tasks, useful_threads(plan.work, job.threads), plan.scratch,
                       [&](int64_t task, void* scratch) { kernel.run(job, task, scratch); });
}

template <class Job>
Status run_on_sets(Job job, Kernel<Job> Kernels::* member, int64_t most = INT64_MAX) {
  return measure(job.sets, most) ? run(job, member) : kBadInput;
}

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API const char* slicegraph_simd_level() { return active.load()->name; }

SLICEGRAPH_API void slicegraph_borrow_threads(void* gomp_parallel) {
  borrow_threads(reinterpret_cast<GompParallel>(gomp_parallel));
}

SLICEGRAPH_API int slicegraph_use_simd_level(int level) {
  const Kernels* found = kernels_of(level);
  if (found) active = found;
  return found ? 0 : 1;
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
      {"slice_attention", sizeof(SliceJob)},    {"rings", sizeof(RingsJob)},
  };
  for (const auto& job : kJobs)
    if (std::strcmp(job.name, operator_name) == 0) return job.bytes;
  return 0;
}

SLICEGRAPH_API int slicegraph_column_sort(const SortJob* job) { return run_on_sets(*job, &Kernels::sort); }
SLICEGRAPH_API int slicegraph_column_permute(const PermuteJob* job) {
  return run_on_sets(*job, &Kernels::permute);
}
SLICEGRAPH_API int slicegraph_max_exchange(const ExchangeJob* job) {
  return run_on_sets(*job, &Kernels::exchange);
}
SLICEGRAPH_API int slicegraph_slice_attention(const SliceJob* job) {
  return run_on_sets(*job, &Kernels::slice);
}
SLICEGRAPH_API int slicegraph_pair_mix(const PairJob* job) {
  return run_on_sets(*job, &Kernels::pair, job->length);
}
SLICEGRAPH_API int slicegraph_pair_attention(const AttentionJob* job) {
  return run_on_sets(*job, &Kernels::attention, job->length);
}
SLICEGRAPH_API int slicegraph_dropout(const DropoutJob* job) { return run(*job, &Kernels::dropout); }
