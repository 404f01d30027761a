// SPDX-License-Identifier: Apache-2.0
// Workers wait for a counter to change. They first spin for some microseconds, so that a launch
// soon after another starts at once, and then sleep in the operating system.
#include "runtime/cpu/thread_pool.hpp"

#include "generator/core/system/threads.hpp"

namespace attune {
namespace {

constexpr int kSpins = 2000;  // about 20 us

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` is no longer `old`.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_cpu();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

// A worker reads workers_ only in a round, and no round begins before the constructor has ended.
ThreadPool::ThreadPool(int num_threads)
    : workers_(start_threads(num_threads - 1, [this](int worker) { serve(worker + 1); })) {}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Work& work) {
  const std::lock_guard lock(turn_);
  if (!workers_.empty()) {
    work_ = &work;
    unfinished_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  work(0, num_threads());
  for (int left; (left = unfinished_.load(std::memory_order_acquire)) > 0;)
    wait_while(unfinished_, left);
}

void ThreadPool::serve(int thread) {
  for (unsigned seen = 0;;) {
    wait_while(round_, seen);
    ++seen;  // run starts the next round only after this one is finished everywhere
    if (stopping_) return;
    (*work_)(thread, num_threads());
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

}  // namespace attune
