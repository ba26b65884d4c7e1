// Messages along edges, and their gradients.
//
// A task has some of the channels and goes through all edges in their order: no two tasks write to one
// entry, and the sums do not depend on the number of threads.
#include <algorithm>

#include "parallel.h"

namespace slicegraph {

template <class T>
void add_message(int64_t count, const T* __restrict from, const T* __restrict edge,
                 T* __restrict sum) {
  for (int64_t c = 0; c < count; ++c) {
    const T message = from[c] + edge[c];
    sum[c] += message < 0 ? T(0) : message;
  }
}

template <class T>
void add_gradients(int64_t count, const T* __restrict from, const T* __restrict edge,
                   const T* __restrict grad_out, T* __restrict grad_from, T* __restrict grad_edge) {
  for (int64_t c = 0; c < count; ++c) {
    const T grad = grad_out[c], passed = from[c] + edge[c] <= 0 ? T(0) : grad;
    grad_from[c] += passed;
    grad_edge[c] += passed;
  }
}

// A range of channels. Neighbouring edges often have the same codes, such as the two directions of a
// bond: their vector, and its gradient, are added up once for a run of such edges.
template <class T>
struct EdgeTask {
  const EdgeJob& job;
  const int64_t first, count;
  const int64_t *source = job.index, *target = job.index + job.edges;

  T* row(const char* base, int64_t number) const {
    return reinterpret_cast<T*>(const_cast<char*>(base)) + number * job.channels + first;
  }
  void clear(char* base, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(row(base, i), count, T(0));
  }
  bool starts_run(int64_t e) const {
    const int64_t* code = job.codes + e * job.width;
    return e == 0 || !std::equal(code, code + job.width, code - job.width);
  }
  void read_edge(int64_t e, T* edge) const {
    std::fill_n(edge, count, T(0));
    for (int64_t k = 0; k < job.width; ++k)
      add<T>(count, row(job.table, job.codes[e * job.width + k]), edge);
  }
  void flush_gradient(int64_t e, T* grad_edge) const {
    for (int64_t k = 0; k < job.width; ++k)
      add<T>(count, grad_edge, row(job.grad_table, job.codes[e * job.width + k]));
    std::fill_n(grad_edge, count, T(0));
  }

  void forward(T* edge) const {
    clear(job.sums, job.rows);
    for (int64_t e = 0; e < job.edges; ++e) {
      if (starts_run(e)) read_edge(e, edge);
      add_message<T>(count, row(job.x, source[e]), edge, row(job.sums, target[e]));
    }
  }

  void backward(T* edge, T* grad_edge) const {
    clear(job.grad_x, job.rows);
    clear(job.grad_table, job.table_rows);
    std::fill_n(grad_edge, count, T(0));
    for (int64_t e = 0; e < job.edges; ++e) {
      if (starts_run(e)) {
        if (e > 0) flush_gradient(e - 1, grad_edge);
        read_edge(e, edge);
      }
      add_gradients<T>(count, row(job.x, source[e]), edge, row(job.grad_out, target[e]),
                       row(job.grad_x, source[e]), grad_edge);
    }
    if (job.edges > 0) flush_gradient(job.edges - 1, grad_edge);
  }
};

template <class T>
int edge_sum(const EdgeJob& job) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t additions = job.edges * (job.width + 2) * job.channels;
  const int threads = useful_threads(additions, job.threads, 1 << 16);
  const int64_t share = larger(parts_of(parts_of(job.channels, threads), kLine) * kLine, 1);
  const int64_t tasks = parts_of(job.channels, share);
  return for_each_task(tasks, threads, 2 * share * sizeof(T), [&](int64_t task, void* scratch) {
    const int64_t first = task * share;
    const EdgeTask<T> edges{job, first, smaller(share, job.channels - first)};
    T* edge = static_cast<T*>(scratch);
    job.backward ? edges.backward(edge, edge + share) : edges.forward(edge);
  });
}

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_edge_sum(const EdgeJob* job) {
  const auto within = [](const int64_t* values, int64_t count, int64_t limit) {
    return std::all_of(values, values + count, [=](int64_t value) { return value >= 0 && value < limit; });
  };
  if (!within(job->index, 2 * job->edges, job->rows) ||
      !within(job->codes, job->edges * job->width, job->table_rows))
    return kBadInput;
  return job->dtype == kFloat32 ? edge_sum<float>(*job) : edge_sum<double>(*job);
}
