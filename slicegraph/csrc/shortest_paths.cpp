// All-pairs shortest paths of a batch of graphs: distances, and the first edges of one path a pair.
//
// Of several shortest paths the one with the lexicographically smallest node sequence is taken, of
// parallel edges the first. A graph of up to 64 nodes is searched from all its nodes at once, with
// sets of nodes as the bits of a word; a larger one with a queue, 64 sources a task.
#include <algorithm>
#include <cstring>
#include <exception>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel.h"

namespace slicegraph {

constexpr int64_t kSourcesPerTask = 64;

// The edges of one graph, nodes numbered from 0, and where its pairs go.
template <class Distance, class Edge>
struct PathsOfGraph {
  const PathsJob& job;
  const int64_t graph;
  const int64_t max_distance = job.max_distance, max_hops = job.max_hops, first_node = job.ptr[graph];
  const int64_t nodes = job.ptr[graph + 1] - first_node;
  const int64_t edges = job.edge_ptr()[graph + 1] - job.edge_ptr()[graph];
  const int64_t *starts = job.edge_index + job.edge_ptr()[graph], *ends = starts + job.edges;
  Distance* distance = static_cast<Distance*>(job.distance) + job.pair_ptr()[graph];
  Edge* path = static_cast<Edge*>(job.path) + job.pair_ptr()[graph] * job.max_hops;

  int64_t start(int64_t edge) const { return starts[edge] - first_node; }
  int64_t end(int64_t edge) const { return ends[edge] - first_node; }
  Distance clipped(int64_t hops) const { return static_cast<Distance>(smaller(hops, max_distance)); }
  // Every pair of these sources unreachable, but for a node and itself.
  void clear(int64_t first_source, int64_t last_source) const {
    const int64_t pairs = (last_source - first_source) * nodes;
    Distance* const row = distance + first_source * nodes;
    for (int64_t p = 0; p < pairs; ++p) row[p] = static_cast<Distance>(max_distance + 1);
    for (int64_t i = first_source; i < last_source; ++i) distance[i * nodes + i] = 0;
    // All bits of -1 are set; and with no hops there may be no memory to set.
    if (max_hops)
      std::memset(path + first_source * nodes * max_hops, 0xff, pairs * max_hops * sizeof(Edge));
  }
};

// Up to 64 nodes. Those at distance d from node i are the ones at distance d - 1 from a neighbour
// of i, less those that are nearer; the path goes through the first such neighbour, and continues
// as the path from there. kHops is max_hops if the compiler shall know it, else 0.
template <int kHops, class Distance, class Edge>
void search_small(const PathsOfGraph<Distance, Edge>& graph, Edge* edge_of) {
  const int64_t n = graph.nodes, hops = kHops ? kHops : graph.max_hops;
  uint64_t neighbours[64], seen[64], sets[2][64];
  uint64_t *last = sets[0], *next = sets[1];
  graph.clear(0, n);
  for (int64_t i = 0; i < n; ++i) {
    neighbours[i] = 0;
    seen[i] = last[i] = uint64_t(1) << i;
  }
  for (int64_t e = graph.edges - 1; e >= 0; --e) {  // backwards: the first of parallel edges stays
    const int64_t i = graph.start(e), j = graph.end(e);
    neighbours[i] |= uint64_t(1) << j;
    edge_of[i * n + j] = static_cast<Edge>(e);
  }
  uint64_t any = 1;
  for (int64_t d = 1; any; ++d) {
    any = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t before = seen[i];
      for (uint64_t left = neighbours[i]; left; left &= left - 1) {
        const int64_t u = __builtin_ctzll(left);
        uint64_t found = last[u] & ~seen[i];
        seen[i] |= found;
        for (; found; found &= found - 1) {
          const int64_t j = __builtin_ctzll(found);
          graph.distance[i * n + j] = graph.clipped(d);
          if (hops == 0) continue;
          Edge* const to = graph.path + (i * n + j) * hops;
          to[0] = edge_of[i * n + u];
          std::memcpy(to + 1, graph.path + (u * n + j) * hops, (hops - 1) * sizeof(Edge));
        }
      }
      next[i] = seen[i] & ~before;
      any |= next[i];
    }
    std::swap(last, next);
  }
}

// The neighbours of each node in ascending order, each with the first edge that leads to it.
struct Neighbours {
  int32_t* first;  // [nodes + 1]
  int32_t* node;   // [edges]
  int32_t* edge;   // [edges]

  // Sorts the edges by start, end and number.
  template <class Graph>
  void fill(const Graph& graph) {
    std::memset(first, 0, (graph.nodes + 1) * sizeof(int32_t));
    for (int64_t e = 0; e < graph.edges; ++e) edge[e] = e, ++first[graph.start(e) + 1];
    for (int64_t i = 0; i < graph.nodes; ++i) first[i + 1] += first[i];
    const auto place = [&](int32_t e) { return std::make_tuple(graph.start(e), graph.end(e), e); };
    std::sort(edge, edge + graph.edges, [&](int32_t a, int32_t b) { return place(a) < place(b); });
    for (int64_t k = 0; k < graph.edges; ++k) node[k] = graph.end(edge[k]);
  }
};

// Nodes enter the queue in the lexicographic order of their paths, so that the first path
// found to a node is the smallest.
template <class Distance, class Edge>
void search_from(const PathsOfGraph<Distance, Edge>& graph, const Neighbours& neighbours,
                 int64_t source, int32_t* queue, int32_t* hops_to) {
  const int64_t n = graph.nodes, hops = graph.max_hops;
  Distance* const distance = graph.distance + source * n;
  Edge* const path = graph.path + source * n * hops;
  for (int64_t i = 0; i < n; ++i) hops_to[i] = -1;
  hops_to[source] = 0;
  int64_t found = 0;
  queue[found++] = static_cast<int32_t>(source);
  for (int64_t next = 0; next < found; ++next) {
    const int64_t i = queue[next], d = hops_to[i];
    for (int32_t k = neighbours.first[i]; k < neighbours.first[i + 1]; ++k) {
      const int64_t j = neighbours.node[k];
      if (hops_to[j] >= 0) continue;
      hops_to[j] = static_cast<int32_t>(d + 1);
      distance[j] = graph.clipped(d + 1);
      queue[found++] = static_cast<int32_t>(j);
      if (hops == 0) continue;
      std::memcpy(path + j * hops, path + i * hops, hops * sizeof(Edge));
      if (d < hops) path[j * hops + d] = static_cast<Edge>(neighbours.edge[k]);
    }
  }
}

template <class Distance, class Edge>
void search_large(const PathsOfGraph<Distance, Edge>& graph, int64_t first_source, void* scratch) {
  int32_t* const memory = static_cast<int32_t*>(scratch);
  const int64_t n = graph.nodes, last_source = smaller(first_source + kSourcesPerTask, n);
  int32_t *const queue = memory + (n + 1), *const hops_to = queue + n, *const node = hops_to + n;
  Neighbours neighbours{memory, node, node + graph.edges};
  neighbours.fill(graph);
  graph.clear(first_source, last_source);
  for (int64_t i = first_source; i < last_source; ++i)
    search_from(graph, neighbours, i, queue, hops_to);
}

template <class Distance, class Edge>
void search_paths(const PathsJob& job, int64_t graph, int64_t first_source, void* scratch) {
  const PathsOfGraph<Distance, Edge> paths{job, graph};
  if (paths.nodes > 64) return search_large(paths, first_source, scratch);
  Edge* const edge_of = static_cast<Edge*>(scratch);
  job.max_hops == 5 ? search_small<5>(paths, edge_of) : search_small<0>(paths, edge_of);
}

}  // namespace slicegraph

using namespace slicegraph;

// Writes the offsets. Bad input: ptr descends, or an edge is not among those of the one graph that
// has both its ends.
SLICEGRAPH_API int slicegraph_graph_offsets(const PathsJob* job) {
  const int64_t graphs = job->graphs, edges = job->edges, *ptr = job->ptr;
  const int64_t *starts = job->edge_index, *ends = starts + edges;
  int64_t *const pair_ptr = job->offsets, *const edge_ptr = job->offsets + graphs + 1;
  if (ptr[0] != 0) return kBadInput;
  pair_ptr[0] = edge_ptr[0] = 0;
  int64_t e = 0;
  for (int64_t b = 0; b < graphs; ++b) {
    const int64_t first = ptr[b], end = ptr[b + 1];
    if (end < first) return kBadInput;
    pair_ptr[b + 1] = pair_ptr[b] + (end - first) * (end - first);
    for (; e < edges && starts[e] >= first && starts[e] < end; ++e)
      if (ends[e] < first || ends[e] >= end) return kBadInput;
    edge_ptr[b + 1] = e;
  }
  return e < edges ? kBadInput : kDone;
}

// For edges that slicegraph_graph_offsets found in order.
SLICEGRAPH_API int slicegraph_shortest_paths(const PathsJob* job) try {
  std::vector<std::pair<int64_t, int64_t>> tasks;  // a graph, and the first of 64 sources
  int64_t scratch = 0;
  for (int64_t b = 0; b < job->graphs; ++b) {
    const int64_t nodes = job->ptr[b + 1] - job->ptr[b];
    const int64_t edges = job->edge_ptr()[b + 1] - job->edge_ptr()[b];
    const int64_t words = nodes <= 64 ? nodes * nodes : 3 * nodes + 1 + 2 * edges;
    scratch = larger(words * sizeof(int32_t), scratch);
    for (int64_t i = 0; i < nodes; i += kSourcesPerTask) tasks.emplace_back(b, i);
  }
  const int threads = useful_threads(job->pair_ptr()[job->graphs], job->threads, 1 << 14);
  const auto search = with_path_types(
      *job, [](auto distance, auto edge) { return search_paths<decltype(distance), decltype(edge)>; });
  return for_each_task(static_cast<int64_t>(tasks.size()), threads, scratch,
                       [&](int64_t task, void* memory) {
                         search(*job, tasks[task].first, tasks[task].second, memory);
                       });
} catch (const std::exception&) {
  return kNoMemory;
}
