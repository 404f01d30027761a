// SPDX-License-Identifier: Apache-2.0
// Persistent worker threads for CPU kernels: one call runs the same work on several threads and
// returns when all are done.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace attune {

class ThreadPool {
 public:
  using Work = std::function<void(int thread, int num_threads)>;

  // Starts num_threads - 1 workers, or as many as the system grants. The caller of run is thread 0.
  // num_threads below 1 counts as 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls work(thread, num_threads) once per thread, at the same time. Allocates nothing.
  // Thread-safe: calls from several threads take turns. `work` must not throw and must not call
  // run.
  void run(const Work& work);

 private:
  void serve(int thread);

  std::mutex turn_;
  const Work* work_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::atomic<unsigned> round_{0};  // raised to start the workers
  std::atomic<int> unfinished_{0};
  std::vector<std::thread> workers_;  // last: they use the members above
};

}  // namespace attune
