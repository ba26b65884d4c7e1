// The rings of a batch of graphs: their chordless cycles up to a length, each once, from its smallest
// node towards the smaller of this node's two neighbours in the ring, in ascending order.
#include <algorithm>
#include <exception>
#include <vector>

#include "jobs.h"

namespace slicegraph {

struct RingSearch {
  const RingsJob& job;
  int64_t rings = 0, members = 0;  // those found, also where there is no room for them

  std::vector<std::vector<int64_t>> neighbours{};
  std::vector<int64_t> path{}, blocked{};  // how many nodes of the path, but for its last, are neighbours

  void search(int64_t graph) {
    const int64_t first_node = job.ptr[graph], nodes = job.ptr[graph + 1] - first_node;
    const int64_t* const edge_ptr = job.offsets + job.graphs + 1;
    neighbours.assign(nodes, {});
    blocked.assign(nodes, 0);
    for (int64_t e = edge_ptr[graph]; e < edge_ptr[graph + 1]; ++e) {
      const int64_t a = job.edge_index[e] - first_node, b = job.edge_index[job.edges + e] - first_node;
      if (a == b) continue;
      neighbours[a].push_back(b);
      neighbours[b].push_back(a);
    }
    for (auto& some : neighbours) {
      std::sort(some.begin(), some.end());
      some.erase(std::unique(some.begin(), some.end()), some.end());
    }
    for (int64_t first = 0; first < nodes; ++first) {
      for (int64_t second : neighbours[first]) {
        if (second < first) continue;
        path = {first, second};
        ++blocked[second];
        extend(first_node);
        --blocked[second];
      }
    }
  }

  void extend(int64_t first_node) {
    const int64_t last = path.back();
    for (int64_t node : neighbours[last]) {
      if (node <= path[0] || blocked[node]) continue;
      path.push_back(node);
      if (std::binary_search(neighbours[node].begin(), neighbours[node].end(), path[0])) {
        if (path[1] < node) add(first_node);  // else it is found in this direction, too
      } else if (static_cast<int64_t>(path.size()) < job.max_length) {
        for (int64_t near : neighbours[last]) ++blocked[near];
        extend(first_node);
        for (int64_t near : neighbours[last]) --blocked[near];
      }
      path.pop_back();
    }
  }

  void add(int64_t first_node) {
    const int64_t length = path.size();
    if (members + length <= job.capacity) {
      for (int64_t i = 0; i < length; ++i) job.nodes[members + i] = path[i] + first_node;
      job.lengths[rings] = length;
    }
    ++rings;
    members += length;
  }
};

}  // namespace slicegraph

using namespace slicegraph;

// For edges that slicegraph_graph_offsets found in order. What is found beyond the capacity is counted
// only.
SLICEGRAPH_API int slicegraph_rings(const RingsJob* job) try {
  RingSearch found{*job};
  for (int64_t graph = 0; graph < job->graphs; ++graph) {
    const int64_t before = found.rings;
    found.search(graph);
    job->counts[graph] = found.rings - before;
  }
  job->counts[job->graphs] = found.members;
  return kDone;
} catch (const std::exception&) {
  return kNoMemory;
}
