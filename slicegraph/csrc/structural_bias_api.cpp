// S + E of every pair of nodes, and its gradients: what slicegraph/ops/backends/cpu_bias.py calls.
//
// A task owns some graphs, and with them their edges. To the rows of the table, which all graphs
// share, it adds in a copy of its own; the copies are added up in the order of the tasks. So the sums
// do not depend on the number of threads.
#include <algorithm>
#include <vector>

#include "api.h"
#include "parallel.h"

namespace slicegraph {

constexpr int64_t kTogether = 8;  // graphs of a task

struct BiasWords {
  int64_t graphs, length, heads, edges, hops, max_distance, token, empty;
  int64_t pairs, path_width, distance_bytes, path_bytes;
  int64_t distance, path, ptr, edge_ptr, table, products, bias, threads;
  double padding;
};

static bool fits(const BiasWords& w) {
  const int64_t *ptr = pointer<const int64_t>(w.ptr), *edge = pointer<const int64_t>(w.edge_ptr);
  int64_t pairs = 0;
  bool good = w.path_width >= w.hops && edge[0] == 0 &&
              (w.hops == 0 || edge[w.graphs] <= w.edges - w.empty);
  for (int64_t b = 0; b < w.graphs; ++b) {
    const int64_t n = ptr[b + 1] - ptr[b];
    good &= n >= 0 && n + w.token <= w.length && edge[b] <= edge[b + 1];
    pairs += n * n;
  }
  return good && pairs == w.pairs;
}

template <class T>
void add(int64_t count, const T* __restrict part, T* __restrict sum) {
  for (int64_t c = 0; c < count; ++c) sum[c] += part[c];
}

// One graph, whose pairs are from `pair` on, and its edges from `edge` on.
template <class T, class D, class P>
struct BiasOfGraph {
  const BiasWords& w;
  const int64_t n, pair, edge, num_edges;
  bool good = true;

  int64_t entry(int64_t p) const {
    const int64_t distance = pointer<const D>(w.distance)[p];
    const bool none = w.path_width ? step(p, 0) < 0 : distance > w.max_distance;
    return none && distance > 0 ? w.max_distance + 1 : std::min(distance, w.max_distance);
  }
  int64_t step(int64_t p, int64_t k) const { return pointer<const P>(w.path)[p * w.path_width + k]; }
  T count(int64_t entry) const { return T(std::max<int64_t>(1, std::min(entry, w.hops))); }

  // Calls each(row) for the rows of the products that a pair adds up.
  template <class Each>
  void along_path(int64_t p, const Each& each) {
    for (int64_t k = 0; k < w.hops; ++k) {
      const int64_t e = step(p, k);
      if (e >= num_edges || e < -1) good = false;
      if (e >= num_edges || (e < 0 && !w.empty)) return;
      each(((e < 0 ? w.edges - 1 : edge + e) * w.hops + k) * w.heads);
    }
  }

  // Row i of the output as [length, heads].
  void look_up(int64_t i, T* row) {
    const T *table = pointer<const T>(w.table), *products = pointer<const T>(w.products);
    const int64_t heads = w.heads, size = n + w.token;
    const T* virtual_row = table + (w.max_distance + 2) * heads;
    for (int64_t j = 0; j < w.length; ++j, row += heads) {
      if (i >= size || j >= size) {
        std::fill_n(row, heads, T(w.padding));
      } else if (w.token && (i == 0 || j == 0)) {
        std::copy_n(virtual_row, heads, row);
      } else {
        const int64_t p = pair + (i - w.token) * n + j - w.token, at = entry(p);
        std::fill_n(row, heads, T(0));
        along_path(p, [&](int64_t from) { add(heads, products + from, row); });
        const T number = count(at);
        for (int64_t c = 0; number != 1 && c < heads; ++c) row[c] /= number;
        add(heads, table + at * heads, row);
      }
    }
  }

  // Adds the gradient of row i to that of the table and of the products.
  void pass_back(int64_t i, T* row, T* of_table, T* of_empty) {
    T* of_products = pointer<T>(w.products);
    const int64_t heads = w.heads;
    for (int64_t j = 0; j < n + w.token; ++j, row += heads) {
      if (w.token && (i == 0 || j == 0)) {
        add(heads, row, of_table + (w.max_distance + 2) * heads);
        continue;
      }
      const int64_t p = pair + (i - w.token) * n + j - w.token, at = entry(p);
      add(heads, row, of_table + at * heads);
      const T number = count(at);
      for (int64_t c = 0; number != 1 && c < heads; ++c) row[c] /= number;
      const int64_t last = (w.edges - 1) * w.hops * heads;
      along_path(p, [&](int64_t to) {
        add(heads, row, w.empty && to >= last ? of_empty + (to - last) : of_products + to);
      });
    }
  }
};

template <class T>
struct BiasTask {
  const BiasWords& w;
  const int64_t square = w.length * w.length;

  // Between [length, heads] and row i of [heads, length, length].
  void write(const T* row, T* bias) const {
    for (int64_t h = 0; h < w.heads; ++h)
      for (int64_t j = 0; j < w.length; ++j) bias[h * square + j] = row[j * w.heads + h];
  }
  void read(const T* bias, T* row) const {
    for (int64_t h = 0; h < w.heads; ++h)
      for (int64_t j = 0; j < w.length; ++j) row[j * w.heads + h] = bias[h * square + j];
  }

  template <class Graph>
  void forward(Graph& graph, int64_t b, T* row) const {
    T* bias = pointer<T>(w.bias) + b * w.heads * square;
    for (int64_t i = 0; i < w.length; ++i) {
      graph.look_up(i, row);
      write(row, bias + i * w.length);
    }
  }

  template <class Graph>
  void backward(Graph& graph, int64_t b, T* row, T* of_table, T* of_empty) const {
    const T* bias = pointer<const T>(w.bias) + b * w.heads * square;
    for (int64_t i = 0; i < graph.n + w.token; ++i) {
      read(bias + i * w.length, row);
      graph.pass_back(i, row, of_table, of_empty);
    }
  }
};

enum BiasStatus : int { kBadEncoding = 1, kFull = 2 };

// Forwards, or backwards if `shares` has room for the gradients that graphs share, a copy a task.
template <class T, class D, class P>
int run(const BiasWords& w, T* shares, int64_t share) {
  const int64_t *ptr = pointer<const int64_t>(w.ptr), *edge = pointer<const int64_t>(w.edge_ptr);
  std::vector<int64_t> pairs(w.graphs + 1, 0);
  for (int64_t b = 0; b < w.graphs; ++b) {
    const int64_t n = ptr[b + 1] - ptr[b];
    pairs[b + 1] = pairs[b] + n * n;
  }
  std::atomic<bool> good{true};
  const BiasTask<T> task{w};
  const auto work = [&](int64_t number, void* scratch) {
    const int64_t end = std::min((number + 1) * kTogether, w.graphs);
    T *row = static_cast<T*>(scratch), *of_table = shares + number * share;
    T* of_empty = of_table + share - w.hops * w.heads;
    for (int64_t b = number * kTogether; b < end; ++b) {
      BiasOfGraph<T, D, P> graph{w, ptr[b + 1] - ptr[b], pairs[b], edge[b], edge[b + 1] - edge[b]};
      share ? task.backward(graph, b, row, of_table, of_empty) : task.forward(graph, b, row);
      if (!graph.good) good = false;
    }
  };
  const int threads = useful_threads(w.pairs * w.heads, w.threads);
  const int64_t tasks = (w.graphs + kTogether - 1) / kTogether;
  const bool done = for_each_task(tasks, threads, w.length * w.heads * sizeof(T), work);
  return !done ? kFull : good ? 0 : kBadEncoding;
}

template <class T>
int run(const BiasWords& w, T* shares = nullptr, int64_t share = 0) {
  if (w.distance_bytes == 1)
    return w.path_bytes == 2 ? run<T, uint8_t, int16_t>(w, shares, share)
                             : run<T, uint8_t, int32_t>(w, shares, share);
  return w.path_bytes == 2 ? run<T, int16_t, int16_t>(w, shares, share)
                           : run<T, int16_t, int32_t>(w, shares, share);
}

template <class T>
int run_backwards(const BiasWords& w) {
  const int64_t rows = w.max_distance + 2 + w.token, share = (rows + w.hops) * w.heads;
  T *of_table = pointer<T>(w.table), *of_products = pointer<T>(w.products);
  std::fill_n(of_table, rows * w.heads, T(0));
  std::fill_n(of_products, w.edges * w.hops * w.heads, T(0));
  std::vector<T> shares((w.graphs + kTogether - 1) / kTogether * share, T(0));
  const int status = run<T>(w, shares.data(), share);
  for (size_t at = 0; at < shares.size(); at += share) {
    add(rows * w.heads, shares.data() + at, of_table);
    if (w.empty)
      add(w.hops * w.heads, shares.data() + at + rows * w.heads,
          of_products + (w.edges - 1) * w.hops * w.heads);
  }
  return status;
}

template <class Run>
int safely(const BiasWords& w, const Run& run) {
  if (!fits(w)) return kBadEncoding;
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return kFull;
  }
}

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_structural_bias(const BiasWords* words, int64_t value_bytes) {
  const BiasWords w = *words;
  return safely(w, [&] { return value_bytes == 4 ? run<float>(w) : run<double>(w); });
}

SLICEGRAPH_API int slicegraph_structural_bias_gradients(const BiasWords* words, int64_t value_bytes) {
  const BiasWords w = *words;
  return safely(
      w, [&] { return value_bytes == 4 ? run_backwards<float>(w) : run_backwards<double>(w); });
}
