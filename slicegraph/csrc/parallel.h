// Threads for the kernels, borrowed from torch.
//
// torch's OpenMP workers spin for milliseconds after each parallel operation; a second thread pool
// would fight them for the cores. So Python hands over the address of the GOMP_parallel that torch
// itself uses. Where there is none, and in forked children, whose OpenMP workers did not survive the
// fork, threads are started for the call.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "jobs.h"

namespace slicegraph {

using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

inline std::atomic<GompParallel> borrowed{nullptr};

inline void borrow_threads(GompParallel parallel) {
  static const int once = pthread_atfork(nullptr, nullptr, [] { borrowed = nullptr; });
  if (once == 0) borrowed = parallel;
}

// Threads for an amount of work: a thread with a smaller share than this costs more than it saves.
inline int useful_threads(int64_t work, int64_t threads, int64_t share = 1 << 17) {
  return static_cast<int>(smaller(work / share + 1, threads));
}

// Working memory of one thread, kept between calls: allocating it for every call costs more than
// sorting in it.
struct Scratch {
  std::unique_ptr<void, decltype(&std::free)> data{nullptr, std::free};
  int64_t bytes = 0;

  // Null if there is no memory.
  void* get(int64_t needed) {
    if (needed > bytes) {
      data.reset();
      data.reset(std::aligned_alloc(64, parts_of(needed, 64) * 64));
      bytes = data ? needed : 0;
    }
    return data.get();
  }
  void trim() {
    constexpr int64_t kKept = int64_t(64) << 20;
    if (bytes > kKept) data.reset(), bytes = 0;
  }
};

// Calls work(task, scratch) for every task, in any order.
template <class Work>
Status for_each_task(int64_t tasks, int threads, int64_t scratch_bytes, const Work& work) {
  struct Team {
    const Work& work;
    const int64_t tasks, chunk, scratch_bytes;
    std::atomic<int64_t> next{0};

    void join() {
      thread_local Scratch memory;
      void* scratch = memory.get(larger(scratch_bytes, 1));
      if (!scratch) return;
      for (int64_t first; (first = next.fetch_add(chunk)) < tasks;) {
        for (int64_t task = first; task < smaller(first + chunk, tasks); ++task) work(task, scratch);
      }
      memory.trim();
    }
  };
  threads = static_cast<int>(smaller(threads, tasks));
  Team team{work, tasks, larger(tasks / (threads > 1 ? threads * 16 : 1), 1), scratch_bytes};
  const auto join = [](void* data) { static_cast<Team*>(data)->join(); };
  const GompParallel parallel = borrowed;
  if (threads > 1 && parallel) {
    parallel(join, &team, static_cast<unsigned>(threads), 0);
  } else {
    std::vector<std::thread> started;
    try {
      for (int i = 1; i < threads; ++i) started.emplace_back(join, &team);
    } catch (const std::exception&) {
      // The threads that did start do the work.
    }
    team.join();
    for (std::thread& thread : started) thread.join();
  }
  // A thread without memory leaves its share to the others; if all had none, nothing was claimed.
  return team.next >= tasks ? kDone : kNoMemory;
}

template <class T>
void add(int64_t count, const T* __restrict part, T* __restrict sum) {
  for (int64_t c = 0; c < count; ++c) sum[c] += part[c];
}

}  // namespace slicegraph
