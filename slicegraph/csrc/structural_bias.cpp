// S + E of every pair of nodes, and its gradients.
//
// A task has some of the graphs, and with them their edges. Gradients of the table, which all graphs
// share, go to a copy for each task; the copies are added up in the order of the tasks. So the sums do
// not depend on the number of threads.
#include <algorithm>
#include <vector>

#include "parallel.h"

namespace slicegraph {

constexpr int64_t kTogether = 8;  // graphs of a task

static bool fits(const BiasJob& w) {
  const int64_t *ptr = w.ptr, *edge = w.edge_ptr;
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

// One graph, whose pairs are from `pair` on, and its edges from `edge` on.
template <class T, class D, class P>
struct BiasOfGraph {
  const BiasJob& w;
  const int64_t n, pair, edge, num_edges;
  bool good = true;

  int64_t entry(int64_t p) {
    const int64_t distance = reinterpret_cast<const D*>(w.distance)[p];
    good &= distance >= 0;
    if (distance < 0) return 0;
    const bool none = w.path_width ? step(p, 0) < 0 : distance > w.max_distance;
    return none && distance > 0 ? w.max_distance + 1 : std::min(distance, w.max_distance);
  }
  int64_t step(int64_t p, int64_t k) const { return reinterpret_cast<const P*>(w.path)[p * w.path_width + k]; }
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
    const T* table = reinterpret_cast<const T*>(w.table);
    const T* products = reinterpret_cast<const T*>(w.products);
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
  void pass_back(int64_t i, T* row, T* grad_table, T* grad_empty) {
    T* grad_products = reinterpret_cast<T*>(w.products);
    const int64_t heads = w.heads;
    for (int64_t j = 0; j < n + w.token; ++j, row += heads) {
      if (w.token && (i == 0 || j == 0)) {
        add(heads, row, grad_table + (w.max_distance + 2) * heads);
        continue;
      }
      const int64_t p = pair + (i - w.token) * n + j - w.token, at = entry(p);
      add(heads, row, grad_table + at * heads);
      const T number = count(at);
      for (int64_t c = 0; number != 1 && c < heads; ++c) row[c] /= number;
      const int64_t last = (w.edges - 1) * w.hops * heads;
      along_path(p, [&](int64_t to) {
        add(heads, row, w.empty && to >= last ? grad_empty + (to - last) : grad_products + to);
      });
    }
  }
};

// Forward; or backward, if `shares` has a copy of the shared gradients for each task.
template <class T, class D, class P>
Status run(const BiasJob& w, T* shares, int64_t share) {
  std::vector<int64_t> pairs(w.graphs + 1, 0);
  for (int64_t b = 0; b < w.graphs; ++b) {
    const int64_t n = w.ptr[b + 1] - w.ptr[b];
    pairs[b + 1] = pairs[b] + n * n;
  }
  std::atomic<bool> good{true};
  const auto work = [&](int64_t number, void* scratch) {
    T *row = static_cast<T*>(scratch), *grad_table = shares + number * share;
    for (int64_t b = number * kTogether; b < smaller((number + 1) * kTogether, w.graphs); ++b) {
      BiasOfGraph<T, D, P> graph{w, w.ptr[b + 1] - w.ptr[b], pairs[b], w.edge_ptr[b],
                                 w.edge_ptr[b + 1] - w.edge_ptr[b]};
      for (int64_t i = 0; i < (w.backward ? graph.n + w.token : w.length); ++i) {
        // Row i of [heads, length, length], of which `row` is [length, heads].
        T* bias = reinterpret_cast<T*>(w.bias) + (b * w.heads * w.length + i) * w.length;
        const auto each = [&](const auto& copy) {
          for (int64_t h = 0; h < w.heads; ++h)
            for (int64_t j = 0; j < w.length; ++j)
              copy(row[j * w.heads + h], bias[h * w.length * w.length + j]);
        };
        if (w.backward) {
          each([](T& to, const T& from) { to = from; });
          graph.pass_back(i, row, grad_table, grad_table + share - w.hops * w.heads);
        } else {
          graph.look_up(i, row);
          each([](const T& from, T& to) { to = from; });
        }
      }
      if (!graph.good) good = false;
    }
  };
  const int threads = useful_threads(w.pairs * w.heads, w.threads);
  const int64_t tasks = parts_of(w.graphs, kTogether);
  const Status status = for_each_task(tasks, threads, w.length * w.heads * sizeof(T), work);
  return status == kDone && !good ? kBadInput : status;
}

template <class T>
Status run(const BiasJob& w) {
  const int64_t rows = w.max_distance + 2 + w.token, width = w.hops * w.heads;
  const int64_t share = w.backward ? rows * w.heads + width : 0;
  T *grad_table = reinterpret_cast<T*>(w.table), *grad_products = reinterpret_cast<T*>(w.products);
  std::vector<T> shares(parts_of(w.graphs, kTogether) * share, T(0));
  if (w.backward) {
    std::fill_n(grad_table, rows * w.heads, T(0));
    std::fill_n(grad_products, w.edges * width, T(0));
  }
  const Status status = with_path_types(w, [&](auto distance, auto edge) {
    return run<T, decltype(distance), decltype(edge)>(w, shares.data(), share);
  });
  for (size_t at = 0; at < shares.size(); at += share) {
    add(rows * w.heads, shares.data() + at, grad_table);
    if (w.empty) add(width, shares.data() + at + rows * w.heads, grad_products + (w.edges - 1) * width);
  }
  return status;
}

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_structural_bias(const BiasJob* job) try {
  if (!fits(*job)) return kBadInput;
  return job->dtype == kFloat32 ? run<float>(*job) : run<double>(*job);
} catch (const std::exception&) {
  return kNoMemory;
}
