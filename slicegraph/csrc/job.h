// What Python hands to the kernels: raw pointers and sizes, no torch type anywhere.
#pragma once

#include <cstdint>

namespace slicegraph {

// How the rows of a tensor fall into sets.
enum Layout : int32_t {
  kDense = 0,       // `count` sets of `rows` rows
  kLengths32 = 1,   // the same, of which the first sizes[b] are real
  kLengths64 = 2,
  kPacked32 = 3,    // set b is the rows sizes[b] to sizes[b + 1]
  kPacked64 = 4,
};

enum Dtype : int32_t { kFloat32 = 0, kFloat64 = 1, kBfloat16 = 2, kFloat16 = 3 };

struct Set {
  int64_t first;     // its first row in a contiguous tensor
  int64_t length;    // its real rows
  int64_t capacity;  // its rows, padding included
};

struct Sets {
  const void* sizes;
  int32_t layout;
  int64_t count;
  int64_t rows;     // rows of a dense set, or of the whole packed tensor
  int64_t longest;  // rows of the longest set

  int64_t size(int64_t i) const {
    return layout == kLengths32 || layout == kPacked32 ? static_cast<const int32_t*>(sizes)[i]
                                                       : static_cast<const int64_t*>(sizes)[i];
  }
  bool packed() const { return layout >= kPacked32; }
  Set operator[](int64_t b) const {
    if (layout == kDense) return {b * rows, rows, rows};
    if (!packed()) return {b * rows, size(b), rows};
    const int64_t first = size(b), length = size(b + 1) - first;
    return {first, length, length};
  }
};

// A batch of sets whose rows need not be contiguous; strides count elements.
struct Input {
  const char* data;
  int64_t set_stride;  // dense sets only
  int64_t row_stride;
};

struct SortJob {
  Sets sets;
  Input x;
  int64_t channels;
  int32_t dtype;
  char* values;         // contiguous
  char* indices;        // contiguous, or null
  int32_t index_bytes;  // 0, 1, 2, 4 or 8
  const uint8_t* mask;  // a direction per channel, or null
  bool descending;      // the direction of all channels when mask is null
};

struct PermuteJob {
  Sets sets;
  const char* from;  // contiguous, like `to` and `indices`
  char* to;
  const char* indices;
  int64_t channels;
  int32_t value_bytes;
  int32_t index_bytes;
  bool scatter;  // to[indices[r]] = from[r], else to[r] = from[indices[r]]
};

struct ExchangeJob {
  Sets sets;
  const char* x;  // contiguous
  char* values;
  int64_t* where;  // [sets, channels], the row that changes places with row 0
  int64_t channels;
  int32_t dtype;
  bool search;  // find the first maxima and write `where`, else read it
};

// Every head of every set is a task.
struct PairJob {
  Sets sets;          // packed
  const char* left;   // [sets, heads, length, length]; if outer, the addresses of rows like `right`
  const char* right;  // [rows, heads * width]; if outer, the addresses of such
  char* out;          // [rows, heads * width]; if outer, [sets, heads, length, length]
  int64_t heads;
  int64_t width;
  int64_t length;
  int32_t dtype;
  bool transposed;
  int64_t outer;  // how many left right^T of each set are added up; with 0 it is left right
};

// What is kept of the entries of a tensor, and by how much it grows: where the hash of an entry's
// place is at least `dropped`.
struct Dropping {
  uint64_t seed;
  uint32_t dropped;
  double scale;
};

// out[i] = x[i] * scale where i is kept, else 0.
struct DropoutJob {
  const char* x;
  char* out;
  int64_t count;
  Dropping dropping;
  int32_t dtype;
};

// The entries of a task; divides 2^32.
constexpr int64_t kDropoutSpan = 1 << 13;

// out = softmax(scale q k^T + bias) v, of which some weights are dropped; with g the gradients. Every
// head of every set is a task.
struct AttentionJob {
  Sets sets;          // packed
  const char* qkv;    // [rows, 3 * heads * width]
  const char* bias;   // [sets, heads, length, length]
  char* totals;       // [rows, heads, 2]: of each softmax the top and 1 / its sum; read if there is g
  const char* g;      // [rows, heads * width], or null
  char* out;          // like g; with g like qkv, its gradient
  const char* added;  // what the gradient of the bias is added to, or null
  char* of_bias;      // like bias, or null
  int64_t heads;
  int64_t width;
  int64_t length;
  double scale;
  Dropping dropping;
  int32_t dtype;
};

// y = gelu(x); with g also of_x = g gelu'(x).
struct GeluJob {
  const float* x;
  const float* g;  // or null
  float* y;
  float* of_x;  // may be g
  int64_t count;
};

// The entries of a task.
constexpr int64_t kGeluSpan = 1 << 12;

// y = scale (x - mean) / deviation + shift for every row; with g also the gradients.
struct NormJob {
  const char* x;  // [rows, width], like g, y and of_x
  const char* scale;
  const char* shift;
  const char* g;  // or null
  char* y;
  char* of_x;  // may be g
  char* sums;  // [tasks, 2, width]: what the rows of a task add to the gradients of scale and shift
  int64_t rows;
  int64_t width;
  double eps;
  int32_t dtype;
};

// The rows of a task: sums over rows go by these, so that they do not depend on the threads.
constexpr int64_t kNormRows = 64;

// One SIMD level's code. A job falls into tasks that may run in any order, on any thread.
struct Kernels {
  const char* name;
  int64_t (*sort_tasks)(const SortJob&);
  int64_t (*sort_scratch)(const SortJob&);
  void (*sort)(const SortJob&, int64_t task, void* scratch);
  int64_t (*permute_tasks)(const PermuteJob&);
  int64_t (*permute_scratch)(const PermuteJob&);
  void (*permute)(const PermuteJob&, int64_t task, void* scratch);
  int64_t (*exchange_tasks)(const ExchangeJob&);
  void (*exchange)(const ExchangeJob&, int64_t task);
  void (*pair_task)(const PairJob&, int64_t task, void* scratch);
  void (*attention_task)(const AttentionJob&, int64_t task, void* scratch);
  void (*dropout_task)(const DropoutJob&, int64_t task);
  void (*gelu_task)(const GeluJob&, int64_t task);
  void (*norm_task)(const NormJob&, int64_t task);
};

}  // namespace slicegraph
