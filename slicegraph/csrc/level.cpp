// All kernels for one SIMD level. Compiled once per level, with that level's flags and these macros:
// SLICEGRAPH_LEVEL (its name) and SLICEGRAPH_VECTOR_BYTES (the width of its registers).
#include "column_sort.h"
#include "pair_attention.h"
#include "permute.h"
#include "slice_attention.h"

#define SLICEGRAPH_TEXT_(name) #name
#define SLICEGRAPH_TEXT(name) SLICEGRAPH_TEXT_(name)

namespace slicegraph::SLICEGRAPH_LEVEL {

static int64_t sort_tasks(const SortJob& job) {
  return with_keys(job, [](const auto& sort) { return sort.tasks(); });
}
static int64_t sort_scratch(const SortJob& job) {
  return with_keys(job, [](const auto& sort) { return sort.scratch(); });
}
static void sort_task(const SortJob& job, int64_t task, void* scratch) {
  with_keys(job, [=](const auto& sort) { sort.run(task, scratch); });
}

extern const Kernels kernels;
const Kernels kernels = {SLICEGRAPH_TEXT(SLICEGRAPH_LEVEL),
                         sort_tasks,
                         sort_scratch,
                         sort_task,
                         permute_tasks,
                         permute_scratch,
                         permute_task,
                         exchange_tasks,
                         exchange_task,
                         pair_task,
                         attention_task,
                         dropout_task,
                         slice_tasks,
                         slice_task};

}  // namespace slicegraph::SLICEGRAPH_LEVEL
