// SPDX-License-Identifier: Apache-2.0
// Compiling candidates on threads; see compile_pool.hpp.
#include "tuner/compile_pool.hpp"

#include <algorithm>
#include <chrono>
#include <new>

#include "generator/core/error.hpp"
#include "generator/core/start_threads.hpp"

namespace attune {
namespace {

Compiled compile_candidate(const TuneTarget& target, const KernelSpec& spec,
                           const TuneCandidate& candidate) {
  Compiled compiled;
  try {
    compiled.image = target.make(spec, candidate);
    if (auto fault = image_fault(compiled.image->info))
      compiled.fault = Fault{TrialStatus::kCompileFailed, *fault};
  } catch (const std::bad_alloc&) {
    compiled.fault = Fault{TrialStatus::kOutOfResources, "out of memory while compiling"};
  } catch (const std::exception& error) {
    compiled.fault = Fault{TrialStatus::kCompileFailed, error.what()};
  }
  return compiled;
}

int default_threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1);
}

}  // namespace

CompilePool::CompilePool(const TuneTarget& target, KernelSpec spec, int threads)
    : target_(target),
      spec_(spec),
      threads_(start_threads(threads > 0 ? threads : default_threads(), [this](int) { work(); })) {}

CompilePool::~CompilePool() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  queued_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CompilePool::submit(const TuneCandidate& candidate) {
  const std::string text = candidate.text();
  const std::lock_guard lock(mutex_);
  if (!jobs_.emplace(text, Job{candidate, nullptr, false}).second) return;
  queue_.push_back(text);
  queued_.notify_one();
}

std::shared_ptr<const Compiled> CompilePool::wait(const TuneCandidate& candidate,
                                                  double timeout_s) {
  submit(candidate);
  const std::string text = candidate.text();
  std::unique_lock lock(mutex_);
  const Job& job = jobs_.at(text);
  if (!job.begun) {
    std::erase(queue_, text);
    queue_.push_front(text);
    queued_.notify_one();
    if (threads_.empty()) compile_first(&lock);
  }
  finished_.wait_for(lock, std::chrono::duration<double>(std::max(0.0, timeout_s)),
                     [&] { return job.result != nullptr; });
  return job.result;
}

void CompilePool::cancel_pending() {
  const std::lock_guard lock(mutex_);
  for (const std::string& text : queue_) jobs_.erase(text);
  queue_.clear();
}

int CompilePool::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

void CompilePool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    queued_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    compile_first(&lock);
  }
}

// The job at the head of the queue, with the lock given up meanwhile.
void CompilePool::compile_first(std::unique_lock<std::mutex>* lock) {
  Job& job = jobs_.at(queue_.front());
  queue_.pop_front();
  job.begun = true;
  lock->unlock();
  auto result = std::make_shared<const Compiled>(compile_candidate(target_, spec_, job.candidate));
  lock->lock();
  job.result = std::move(result);
  ++num_compiled_;
  finished_.notify_all();
}

}  // namespace attune
