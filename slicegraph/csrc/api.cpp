// The C interface that slicegraph/ops/backends/cpu.py calls through ctypes.
#include "api.h"

#include "parallel.h"

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

const Kernels& active_kernels() { return *active.load(); }

int useful_threads(int64_t work, int64_t threads) {
  constexpr int64_t kShare = 1 << 17;
  const int64_t most = work / kShare + 1;
  return static_cast<int>(most < threads ? most : threads);
}

static int64_t log2_ceil(int64_t n) {
  int64_t log = 1;
  while ((int64_t(1) << log) < n) ++log;
  return log;
}

// False if a set reaches outside its rows. Also finds the longest set.
static bool measure(Sets& sets) {
  sets.longest = sets.rows;
  if (sets.layout == kDense) return true;
  if (!sets.packed()) {
    sets.longest = 0;
    for (int64_t b = 0; b < sets.count; ++b) {
      const int64_t n = sets.size(b);
      if (n < 0 || n > sets.rows) return false;
      if (n > sets.longest) sets.longest = n;
    }
    return true;
  }
  if (sets.size(0) != 0 || sets.size(sets.count) != sets.rows) return false;
  sets.longest = 0;
  for (int64_t b = 0; b < sets.count; ++b) {
    const int64_t n = sets.size(b + 1) - sets.size(b);
    if (n < 0) return false;
    if (n > sets.longest) sets.longest = n;
  }
  return true;
}

void expect_large_writes(void* data, int64_t bytes) {
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

// Chooses a SIMD level by name, if this machine has it.
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

// Each operator takes its arguments as one array of words, in the order of these structs: ctypes
// needs 2 microseconds for 15 arguments, and a third of that for one.
struct SetWords {
  int64_t sizes, layout, count, rows, channels, threads;

  Sets sets() const {
    return {reinterpret_cast<const void*>(sizes), static_cast<int32_t>(layout), count, rows, 0};
  }
  int64_t elements() const { return (layout >= kPacked32 ? rows : count * rows) * channels; }
};

struct SortWords {
  int64_t x, set_stride, row_stride, values, indices, index_bytes, mask, descending, dtype;
  SetWords sets;
};

struct PermuteWords {
  int64_t from, to, indices, value_bytes, index_bytes, scatter;
  SetWords sets;
};

struct ExchangeWords {
  int64_t x, values, where, dtype, search;
  SetWords sets;
};

static int64_t value_bytes(int64_t dtype) {
  return dtype == kFloat64 ? 8 : dtype == kFloat32 ? 4 : 2;
}

SLICEGRAPH_API int slicegraph_column_sort(const SortWords* words) {
  const SortWords w = *words;
  const Kernels& kernels = *active.load();
  SortJob job{w.sets.sets(),
              {pointer<const char>(w.x), w.set_stride, w.row_stride},
              w.sets.channels,
              static_cast<int32_t>(w.dtype),
              pointer<char>(w.values),
              pointer<char>(w.indices),
              static_cast<int32_t>(w.index_bytes),
              pointer<const uint8_t>(w.mask),
              w.descending != 0};
  if (!measure(job.sets)) return kBadSizes;
  const int64_t elements = w.sets.elements();
  if (elements == 0) return kDone;
  expect_large_writes(job.values, elements * value_bytes(w.dtype));
  expect_large_writes(job.indices, elements * w.index_bytes);
  // Few columns of many rows are sorted one by one, and each comparison costs more.
  const int64_t cost = w.sets.channels < 8 && job.sets.longest > 512 ? 4 : 1;
  const int threads = useful_threads(cost * elements * log2_ceil(job.sets.longest), w.sets.threads);
  const bool done =
      for_each_task(kernels.sort_tasks(job), threads, kernels.sort_scratch(job),
                    [&](int64_t task, void* scratch) { kernels.sort(job, task, scratch); });
  return done ? kDone : kNoMemory;
}

SLICEGRAPH_API int slicegraph_column_permute(const PermuteWords* words) {
  const PermuteWords w = *words;
  const Kernels& kernels = *active.load();
  PermuteJob job{w.sets.sets(),
                 pointer<const char>(w.from),
                 pointer<char>(w.to),
                 pointer<const char>(w.indices),
                 w.sets.channels,
                 static_cast<int32_t>(w.value_bytes),
                 static_cast<int32_t>(w.index_bytes),
                 w.scatter != 0};
  if (!measure(job.sets)) return kBadSizes;
  const int64_t elements = w.sets.elements();
  if (elements == 0) return kDone;
  expect_large_writes(job.to, elements * w.value_bytes);
  const int threads = useful_threads(2 * elements, w.sets.threads);
  const bool done =
      for_each_task(kernels.permute_tasks(job), threads, kernels.permute_scratch(job),
                    [&](int64_t task, void* scratch) { kernels.permute(job, task, scratch); });
  return done ? kDone : kNoMemory;
}

SLICEGRAPH_API int slicegraph_max_exchange(const ExchangeWords* words) {
  const ExchangeWords w = *words;
  const Kernels& kernels = *active.load();
  ExchangeJob job{w.sets.sets(),
                  pointer<const char>(w.x),
                  pointer<char>(w.values),
                  pointer<int64_t>(w.where),
                  w.sets.channels,
                  static_cast<int32_t>(w.dtype),
                  w.search != 0};
  if (!measure(job.sets)) return kBadSizes;
  const int64_t elements = w.sets.elements();
  if (w.sets.channels == 0) return kDone;
  expect_large_writes(job.values, elements * value_bytes(w.dtype));
  const int threads = useful_threads(4 * elements, w.sets.threads);
  const bool done = for_each_task(kernels.exchange_tasks(job), threads, 0,
                                  [&](int64_t task, void*) { kernels.exchange(job, task); });
  return done ? kDone : kNoMemory;
}
