// All kernels for one SIMD level. Compiled once per level, with that level's flags and these macros:
// SLICEGRAPH_LEVEL (its name) and SLICEGRAPH_VECTOR_BYTES (the width of its registers).
#include "column_sort.h"
#include "permute.h"
#include "slice_attention.h"

#define SLICEGRAPH_TEXT_(name) #name
#define SLICEGRAPH_TEXT(name) SLICEGRAPH_TEXT_(name)

namespace slicegraph::SLICEGRAPH_LEVEL {

extern const Kernels kernels;
const Kernels kernels = {SLICEGRAPH_TEXT(SLICEGRAPH_LEVEL),
                         {sort_plan, sort_task},
                         {permute_plan, permute_task},
                         {exchange_plan, exchange_task},
                         {slice_plan, slice_task},
                         {pair_plan, pair_task},
                         {attention_plan, attention_task},
                         {dropout_plan, dropout_task}};

}  // namespace slicegraph::SLICEGRAPH_LEVEL
