// Sums of rows of a table, and their gradient: what slicegraph/ops/backends/cpu_tables.py calls.
#include "parallel.h"

#define SLICEGRAPH_API extern "C" __attribute__((visibility("default")))

namespace slicegraph {

// Entry p is the sum of the `width` rows of the table that places[p * width ...] names.
struct SumWords {
  int64_t rows, channels, places, count, width, table, sums, value_bytes, threads;
};

static bool within(const SumWords& w) {
  const int64_t* places = reinterpret_cast<const int64_t*>(w.places);
  bool good = true;
  for (int64_t i = 0; i < w.count * w.width; ++i)
    good &= static_cast<uint64_t>(places[i]) < static_cast<uint64_t>(w.rows);
  return good;
}

// Below this share of additions another thread costs more than it brings.
static int useful_threads(const SumWords& w) {
  constexpr int64_t kShare = 1 << 16;
  const int64_t most = w.count * w.width * w.channels / kShare + 1;
  return static_cast<int>(most < w.threads ? most : w.threads);
}

template <class T>
bool gather_sum(const SumWords& w) {
  constexpr int64_t kEntries = 256;
  const int64_t* places = reinterpret_cast<const int64_t*>(w.places);
  const T* table = reinterpret_cast<const T*>(w.table);
  T* sums = reinterpret_cast<T*>(w.sums);
  const int64_t channels = w.channels;
  const auto work = [&](int64_t task, void*) {
    const int64_t end = (task + 1) * kEntries < w.count ? (task + 1) * kEntries : w.count;
    for (int64_t p = task * kEntries; p < end; ++p) {
      T* sum = sums + p * channels;
      for (int64_t c = 0; c < channels; ++c) sum[c] = 0;
      for (int64_t k = 0; k < w.width; ++k) {
        const T* row = table + places[p * w.width + k] * channels;
        for (int64_t c = 0; c < channels; ++c) sum[c] += row[c];
      }
    }
  };
  return for_each_task((w.count + kEntries - 1) / kEntries, useful_threads(w), 0, work);
}

// A task owns some rows of the table and adds to them in the order of the entries: no two tasks
// write to one row, and the sums do not depend on the number of threads.
template <class T>
bool scatter_sum(const SumWords& w) {
  constexpr int64_t kTogether = 8;
  const int64_t* places = reinterpret_cast<const int64_t*>(w.places);
  T* table = reinterpret_cast<T*>(w.table);
  const T* sums = reinterpret_cast<const T*>(w.sums);
  const int64_t channels = w.channels;
  const int threads = useful_threads(w);
  int64_t tasks = 1;  // a power of two: a division for every entry would take longer than its sum
  while (threads > 1 && tasks < 2 * threads) tasks *= 2;
  const auto work = [&](int64_t task, void*) {
    const auto owned = [&](int64_t row) { return (row / kTogether & (tasks - 1)) == task; };
    for (int64_t row = 0; row < w.rows; ++row)
      for (int64_t c = 0; owned(row) && c < channels; ++c) table[row * channels + c] = 0;
    for (int64_t p = 0; p < w.count; ++p)
      for (int64_t k = 0; k < w.width; ++k) {
        const int64_t place = places[p * w.width + k];
        if (!owned(place)) continue;
        T* row = table + place * channels;
        const T* sum = sums + p * channels;
        for (int64_t c = 0; c < channels; ++c) row[c] += sum[c];
      }
  };
  return for_each_task(tasks, threads, 0, work);
}

enum Status : int { kDone = 0, kBadPlaces = 1, kNoMemory = 2 };

template <class Run>
int checked(const SumWords& w, Run run) {
  if (!within(w)) return kBadPlaces;
  return run() ? kDone : kNoMemory;
}

}  // namespace slicegraph

using namespace slicegraph;

SLICEGRAPH_API int slicegraph_gather_sum(const SumWords* words) {
  const SumWords w = *words;
  return checked(w, [&] { return w.value_bytes == 4 ? gather_sum<float>(w) : gather_sum<double>(w); });
}

SLICEGRAPH_API int slicegraph_scatter_sum(const SumWords* words) {
  const SumWords w = *words;
  return checked(w, [&] { return w.value_bytes == 4 ? scatter_sum<float>(w) : scatter_sum<double>(w); });
}
