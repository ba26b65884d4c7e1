// Messages along edges, and their gradients: what slicegraph/ops/backends/cpu_edges.py calls.
//
// A task owns some channels and goes through all edges in their order: no two tasks write to one
// entry, and the sums do not depend on the number of threads.
#include <algorithm>

#include "parallel.h"

#define SLICEGRAPH_API extern "C" __attribute__((visibility("default")))

namespace slicegraph {

// Edge e leads from row index[e] to row index[edges + e] of x, and is the sum of the `width` rows of
// the table that codes[e * width ...] names. The gradients are of x and of the table.
struct EdgeWords {
  int64_t rows, channels, table_rows, edges, width;
  int64_t x, table, codes, index, sums, of_x, of_table, value_bytes, threads;
};

static bool within(int64_t values, int64_t count, int64_t limit) {
  const int64_t* value = reinterpret_cast<const int64_t*>(values);
  bool good = true;
  for (int64_t i = 0; i < count; ++i)
    good &= static_cast<uint64_t>(value[i]) < static_cast<uint64_t>(limit);
  return good;
}

template <class T>
void add(int64_t count, const T* __restrict part, T* __restrict sum) {
  for (int64_t c = 0; c < count; ++c) sum[c] += part[c];
}

template <class T>
void hear(int64_t count, const T* __restrict from, const T* __restrict kind, T* __restrict sum) {
  for (int64_t c = 0; c < count; ++c) {
    const T said = from[c] + kind[c];
    sum[c] += said < 0 ? T(0) : said;
  }
}

template <class T>
void answer(int64_t count, const T* __restrict from, const T* __restrict kind, const T* __restrict g,
            T* __restrict of_from, T* __restrict of_kind) {
  for (int64_t c = 0; c < count; ++c) {
    const T whole = g[c], passed = from[c] + kind[c] <= 0 ? T(0) : whole;
    of_from[c] += passed;
    of_kind[c] += passed;
  }
}

// A range of channels. Neighbouring edges are often of one kind, such as the two directions of a
// bond: the vector of a kind, and its gradient, are added up once for a run of such edges.
template <class T>
struct EdgeTask {
  const EdgeWords& w;
  const int64_t first, count;
  const int64_t* codes = reinterpret_cast<const int64_t*>(w.codes);
  const int64_t* source = reinterpret_cast<const int64_t*>(w.index);
  const int64_t* target = source + w.edges;

  T* row(int64_t base, int64_t number) const {
    return reinterpret_cast<T*>(base) + number * w.channels + first;
  }

  void clear(int64_t base, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(row(base, i), count, T(0));
  }

  bool starts_run(int64_t e) const {
    const int64_t *code = codes + e * w.width, *before = code - w.width;
    bool same = e > 0;
    for (int64_t k = 0; same && k < w.width; ++k) same = code[k] == before[k];
    return !same;
  }

  void read_kind(int64_t e, T* kind) const {
    std::fill_n(kind, count, T(0));
    for (int64_t k = 0; k < w.width; ++k) add(count, row(w.table, codes[e * w.width + k]), kind);
  }

  void add_to_kind(int64_t e, T* of_kind) const {
    for (int64_t k = 0; k < w.width; ++k)
      add(count, of_kind, row(w.of_table, codes[e * w.width + k]));
    std::fill_n(of_kind, count, T(0));
  }

  void sum(T* kind) const {
    clear(w.sums, w.rows);
    for (int64_t e = 0; e < w.edges; ++e) {
      if (starts_run(e)) read_kind(e, kind);
      hear(count, row(w.x, source[e]), kind, row(w.sums, target[e]));
    }
  }

  void differentiate(T* kind, T* of_kind) const {
    clear(w.of_x, w.rows);
    clear(w.of_table, w.table_rows);
    std::fill_n(of_kind, count, T(0));
    for (int64_t e = 0; e < w.edges; ++e) {
      if (starts_run(e)) {
        if (e > 0) add_to_kind(e - 1, of_kind);
        read_kind(e, kind);
      }
      const T *from = row(w.x, source[e]), *g = row(w.sums, target[e]);
      answer(count, from, kind, g, row(w.of_x, source[e]), of_kind);
    }
    if (w.edges > 0) add_to_kind(w.edges - 1, of_kind);
  }
};

// Below this share of additions another thread costs more than it brings.
static int useful_threads(const EdgeWords& w) {
  constexpr int64_t kShare = 1 << 16;
  const int64_t most = w.edges * (w.width + 2) * w.channels / kShare + 1;
  return static_cast<int>(most < w.threads ? most : w.threads);
}

template <class T>
bool run(const EdgeWords& w) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const bool backwards = w.of_x || w.of_table;  // empty tensors have no address
  const int threads = useful_threads(w);
  const int64_t share = ((w.channels + threads - 1) / threads + kLine - 1) / kLine * kLine;
  const auto work = [&](int64_t task, void* scratch) {
    const int64_t first = task * share;
    const EdgeTask<T> edges{w, first, std::min(share, w.channels - first)};
    T* kind = static_cast<T*>(scratch);
    backwards ? edges.differentiate(kind, kind + share) : edges.sum(kind);
  };
  const int64_t tasks = w.channels > 0 ? (w.channels + share - 1) / share : 0;
  return for_each_task(tasks, threads, 2 * share * sizeof(T), work);
}

enum Status : int { kDone = 0, kBadPlaces = 1, kNoMemory = 2 };

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_edge_sum(const EdgeWords* words) {
  const EdgeWords w = *words;
  if (!within(w.index, 2 * w.edges, w.rows) || !within(w.codes, w.edges * w.width, w.table_rows))
    return kBadPlaces;
  return (w.value_bytes == 4 ? run<float>(w) : run<double>(w)) ? kDone : kNoMemory;
}
