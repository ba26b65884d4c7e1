// The jobs that slicegraph/ops/cpu.py packs: one word of 8 bytes a field, pointers first. Raw pointers
// and sizes only, no type of torch. Python compares the sizes of the structs when it loads the library.
#pragma once

#include <cstdint>

#define SLICEGRAPH_API extern "C" __attribute__((visibility("default")))
#define SLICEGRAPH_INLINE inline __attribute__((always_inline))

namespace slicegraph {

static_assert(sizeof(void*) == 8, "Python packs pointers as words of 8 bytes");

SLICEGRAPH_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
SLICEGRAPH_INLINE int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }
// How many parts of b there are in a, the last of which may be smaller.
SLICEGRAPH_INLINE int64_t parts_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

enum Status : int { kDone = 0, kBadInput = 1, kNoMemory = 2 };

enum Dtype : int64_t { kFloat32 = 0, kFloat64 = 1, kBfloat16 = 2, kFloat16 = 3 };

inline int64_t value_bytes(int64_t dtype) {
  return dtype == kFloat64 ? 8 : dtype == kFloat32 ? 4 : 2;
}

// How the rows of a tensor are divided into sets.
enum Layout : int64_t {
  kDense = 0,    // `count` sets of `rows` rows
  kLengths = 1,  // the same, with sizes[b] real rows at the front of set b
  kPacked = 2,   // set b is the rows sizes[b] to sizes[b + 1]
};

struct Set {
  int64_t first;     // its first row in a contiguous tensor
  int64_t length;    // its real rows
  int64_t capacity;  // its rows, padding included
};

struct Sets {
  const int64_t* sizes;
  int64_t layout;
  int64_t count;
  int64_t rows;     // rows of a dense set, or of the whole packed tensor
  int64_t longest;  // rows of the longest set, found by `measure`

  bool packed() const { return layout == kPacked; }
  int64_t all_rows() const { return packed() ? rows : count * rows; }
  Set operator[](int64_t b) const {
    if (layout == kDense) return {b * rows, rows, rows};
    if (!packed()) return {b * rows, sizes[b], rows};
    const int64_t first = sizes[b], length = sizes[b + 1] - first;
    return {first, length, length};
  }
};

struct SortJob {
  const char* x;        // its rows need not be contiguous
  char* values;         // contiguous
  char* indices;        // contiguous, or null
  const uint8_t* mask;  // a direction per channel, or null
  Sets sets;
  int64_t channels, threads;
  int64_t set_stride, row_stride;  // of x, in elements
  int64_t index_bytes;             // 0, 1, 2, 4 or 8
  int64_t descending;              // the direction of all channels when mask is null
  int64_t dtype;
};

struct PermuteJob {
  const char* from;  // contiguous, like `to` and `indices`
  char* to;
  const char* indices;
  Sets sets;
  int64_t channels, threads;
  int64_t value_bytes, index_bytes;
  int64_t scatter;  // to[indices[r]] = from[r], else to[r] = from[indices[r]]
};

struct ExchangeJob {
  const char* x;  // contiguous
  char* values;
  int64_t* where;  // [sets, channels], the row that is swapped with row 0
  Sets sets;
  int64_t channels, threads;
  int64_t dtype;
  int64_t search;  // find the first maxima and write `where`, else read it
};

// Attention along slices, given the sorted keys; with grad_out the gradients.
struct SliceJob {
  const char* keys;      // [rows, heads], sorted in each set
  const char* queries;   // [rows, heads], or null: the keys, each at its place
  const int32_t* order;  // [rows, heads], the row of its set that each sorted key comes from
  const char* values;    // [rows, heads * width]
  const char* tau;       // [heads]
  char* out;             // [rows, heads * width]; with grad_out the gradient of values
  const char* grad_out;  // [rows, heads * width], or null
  char *grad_keys, *grad_queries;
  char* grad_tau;  // [sets, heads]
  Sets sets;
  int64_t heads, width, threads, dtype;
  int64_t relu;  // by the relu kernel, else by the Laplace kernel
};

// Every head of every set is a task.
struct PairJob {
  const char* left;   // [sets, heads, length, length]; if outer, like `right`
  const char* right;  // [rows, heads * width]
  char* out;          // [rows, heads * width]; if outer, [sets, heads, length, length]
  const char* added;  // if outer, squares that are added to out, or null
  Sets sets;          // packed
  int64_t heads, width, length;
  int64_t threads, dtype;
  int64_t transposed;
  int64_t outer;  // left right^T, else left right
};

// out = drop(softmax(q k^T / sqrt(width) + bias)) v; with grad_out the gradients. Every head of every
// set is a task.
struct AttentionJob {
  const char* qkv;       // [rows, 3 * heads * width]
  const char* bias;      // [sets, heads, length, length]
  char* totals;          // [rows, heads, 2]: the maximum and 1 / the sum of each softmax
  char* out;             // [rows, heads * width]; with grad_out like qkv, its gradient
  const char* grad_out;  // [rows, heads * width], or null
  const char* added;     // a gradient that is added to that of the bias, or null
  char* grad_bias;       // like bias, or null
  Sets sets;             // packed
  int64_t heads, width, length;
  int64_t threads, dtype;
  int64_t seed, dropped;  // a weight is dropped if the hash of its position is below `dropped`
  double kept_scale;      // the factor of the other weights
};

struct DropoutJob {
  const char* x;
  char* out;
  int64_t count, seed, dropped;  // an entry is dropped if the hash of its position is below `dropped`
  int64_t dtype, threads;
  double kept_scale;  // the factor of the other entries
};

// Edge e goes from row index[e] to row index[edges + e] of x, and has the sum of the `width` rows of
// the table at codes[e * width ...]. With grad_out the gradients of x and of the table.
struct EdgeJob {
  const char *x, *table;
  const int64_t *codes, *index;
  char* sums;
  const char* grad_out;
  char *grad_x, *grad_table;
  int64_t rows, channels, table_rows, edges, width;
  int64_t backward, dtype, threads;
};

// table and products are read, or are their gradients if backward; the same for bias.
struct BiasJob {
  char *table, *products, *bias;
  const char *distance, *path;
  const int64_t *ptr, *edge_ptr;
  int64_t graphs, length, heads, edges, hops, max_distance, token, empty;
  int64_t pairs, path_width, distance_bytes, path_bytes;
  int64_t backward, dtype, threads;
  double padding;
};

struct PathsJob {
  const int64_t* edge_index;  // [2, edges], grouped by graph; node numbers of the whole batch
  const int64_t* ptr;         // [graphs + 1], the first node of each graph
  int64_t* offsets;           // [2, graphs + 1], the first pair and the first edge of each graph
  void* distance;             // [pairs]
  void* path;                 // [pairs, max_hops]
  int64_t edges, graphs, max_distance, max_hops;
  int64_t distance_bytes, path_bytes, threads;

  const int64_t* pair_ptr() const { return offsets; }
  const int64_t* edge_ptr() const { return offsets + graphs + 1; }
};

struct RingsJob {
  const int64_t* edge_index;  // as in PathsJob, like the next two
  const int64_t* ptr;
  const int64_t* offsets;
  int64_t* nodes;    // [capacity], those of each ring
  int64_t* lengths;  // [capacity / 3], how many these are
  int64_t* counts;   // [graphs + 1], the rings of each graph; at the end the nodes of all rings
  int64_t edges, graphs, max_length, capacity;
};

// Calls use(distance, edge) with zeros of the types of a job's distances and paths.
template <class Job, class Use>
auto with_path_types(const Job& job, const Use& use) {
  const auto with = [&](auto distance) {
    return job.path_bytes == 2 ? use(distance, int16_t()) : use(distance, int32_t());
  };
  return job.distance_bytes == 1 ? with(uint8_t()) : with(int16_t());
}

// A job is divided into tasks that may run in any order, on any thread.
struct Plan {
  int64_t tasks = 0;
  int64_t scratch = 0;  // bytes that a task needs
  int64_t work = 0;     // of all tasks, about as many as there are additions
  struct {
    void* data = nullptr;
    int64_t bytes = 0;
  } outputs[2] = {};
};

template <class Job>
struct Kernel {
  Plan (*plan)(const Job&);
  void (*run)(const Job&, int64_t task, void* scratch);
};

// The code of one SIMD level.
struct Kernels {
  const char* name;
  Kernel<SortJob> sort;
  Kernel<PermuteJob> permute;
  Kernel<ExchangeJob> exchange;
  Kernel<SliceJob> slice;
  Kernel<PairJob> pair;
  Kernel<AttentionJob> attention;
  Kernel<DropoutJob> dropout;
};

}  // namespace slicegraph
