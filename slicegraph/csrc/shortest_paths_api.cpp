// The C interface that slicegraph/ops/backends/cpu_structure.py calls through ctypes.
#include <exception>
#include <vector>

#include "parallel.h"
#include "shortest_paths.h"

#define SLICEGRAPH_API extern "C" __attribute__((visibility("default")))

namespace slicegraph {

struct PathsTask {
  int64_t graph, first_source;
};

static std::vector<PathsTask> paths_tasks(const PathsJob& job, int64_t graphs) {
  std::vector<PathsTask> tasks;
  tasks.reserve(graphs);
  for (int64_t b = 0; b < graphs; ++b)
    for (int64_t i = 0; i < job.ptr[b + 1] - job.ptr[b]; i += kSourcesPerTask)
      tasks.push_back({b, i});
  return tasks;
}

static int64_t most_paths_scratch(const PathsJob& job, int64_t graphs) {
  int64_t most = 0;
  for (int64_t b = 0; b < graphs; ++b) {
    const int64_t bytes =
        paths_scratch(job.ptr[b + 1] - job.ptr[b], job.edge_ptr[b + 1] - job.edge_ptr[b]);
    if (bytes > most) most = bytes;
  }
  return most;
}

// Below this share of pairs another thread costs more than it brings.
static int useful_threads(int64_t pairs, int threads) {
  constexpr int64_t kShare = 1 << 14;
  const int64_t most = pairs / kShare + 1;
  return most < threads ? static_cast<int>(most) : threads;
}

using Search = void (*)(const PathsJob&, int64_t graph, int64_t first_source, void* scratch);

static Search search_for(int distance_bytes, int edge_bytes) {
  if (distance_bytes == 1)
    return edge_bytes == 2 ? search_paths<uint8_t, int16_t> : search_paths<uint8_t, int32_t>;
  return edge_bytes == 2 ? search_paths<int16_t, int16_t> : search_paths<int16_t, int32_t>;
}

}  // namespace slicegraph

using namespace slicegraph;

// Writes the first pair of each graph, then the first edge of each: [2, graphs + 1]. Nonzero if
// ptr descends, or an edge is not among those of the one graph that has both its ends.
SLICEGRAPH_API int slicegraph_graph_offsets(const int64_t* edge_index, int64_t edges,
                                            const int64_t* ptr, int64_t graphs, int64_t* offsets) {
  int64_t *const pair_ptr = offsets, *const edge_ptr = offsets + graphs + 1;
  if (ptr[0] != 0) return 1;
  pair_ptr[0] = edge_ptr[0] = 0;
  int64_t e = 0;
  for (int64_t b = 0; b < graphs; ++b) {
    const int64_t first = ptr[b], end = ptr[b + 1];
    if (end < first) return 1;
    pair_ptr[b + 1] = pair_ptr[b] + (end - first) * (end - first);
    while (e < edges && edge_index[e] >= first && edge_index[e] < end) {
      const int64_t other = edge_index[edges + e++];
      if (other < first || other >= end) return 1;
    }
    edge_ptr[b + 1] = e;
  }
  return e < edges;
}

// For edges that slicegraph_graph_offsets found in order. Nonzero if there is no memory.
SLICEGRAPH_API int slicegraph_shortest_paths(const int64_t* edge_index, int64_t edges,
                                             const int64_t* ptr, int64_t graphs,
                                             const int64_t* pair_ptr, const int64_t* edge_ptr,
                                             int64_t max_distance, int64_t max_hops, void* distance,
                                             int distance_bytes, void* path, int edge_bytes,
                                             int threads) try {
  const PathsJob job{edge_index, edge_index + edges, ptr,      pair_ptr, edge_ptr,
                     max_distance, max_hops,         distance, path};
  const std::vector<PathsTask> tasks = paths_tasks(job, graphs);
  const Search search = search_for(distance_bytes, edge_bytes);
  const bool done = for_each_task(
      static_cast<int64_t>(tasks.size()), useful_threads(pair_ptr[graphs], threads),
      most_paths_scratch(job, graphs), [&](int64_t task, void* scratch) {
        search(job, tasks[task].graph, tasks[task].first_source, scratch);
      });
  return done ? 0 : 1;
} catch (const std::exception&) {
  return 1;
}
