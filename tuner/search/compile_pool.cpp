// SPDX-License-Identifier: Apache-2.0
// Compiles candidates on threads; see compile_pool.hpp.
#include "tuner/search/compile_pool.hpp"

#include <algorithm>
#include <chrono>
#include <new>

#include "generator/core/system/error.hpp"
#include "generator/core/system/threads.hpp"

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

CompilePool::CompilePool(const TuneTarget& target, int threads, TuneTrace* trace)
    : target_(target),
      trace_(trace),
      threads_(start_threads(threads > 0 ? threads : default_threads(), [this](int) { work(); })) {}

CompilePool::~CompilePool() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  queued_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::string CompilePool::key(const KernelSpec& spec, const TuneCandidate& candidate) {
  return to_text(spec) + " " + candidate.text();
}

void CompilePool::submit(const KernelSpec& spec, const TuneCandidate& candidate) {
  const std::string text = key(spec, candidate);
  const std::lock_guard lock(mutex_);
  if (!jobs_.emplace(text, Job{spec, candidate, nullptr, false}).second) return;
  queue_.push_back(text);
  queued_.notify_one();
}

CompilePool::Job& CompilePool::put_first(const KernelSpec& spec, const TuneCandidate& candidate) {
  const std::string text = key(spec, candidate);
  Job& job = jobs_.emplace(text, Job{spec, candidate, nullptr, false}).first->second;
  if (job.begun) return job;
  std::erase(queue_, text);
  queue_.push_front(text);
  queued_.notify_one();
  return job;
}

void CompilePool::hasten(const KernelSpec& spec, const std::vector<TuneCandidate>& candidates) {
  const std::lock_guard lock(mutex_);
  for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate)
    put_first(spec, *candidate);
}

std::shared_ptr<const Compiled> CompilePool::wait(const KernelSpec& spec,
                                                  const TuneCandidate& candidate,
                                                  double timeout_s) {
  std::unique_lock lock(mutex_);
  const Job& job = put_first(spec, candidate);
  if (!job.begun && threads_.empty()) compile_first(&lock);
  finished_.wait_for(lock, std::chrono::duration<double>(std::max(0.0, timeout_s)),
                     [&] { return job.result != nullptr; });
  return job.result;
}

void CompilePool::cancel_pending() {
  const std::lock_guard lock(mutex_);
  for (const std::string& text : queue_) jobs_.erase(text);
  queue_.clear();
}

void CompilePool::forget(const KernelSpec& spec) {
  const std::lock_guard lock(mutex_);
  const std::string begin = to_text(spec) + " ";
  std::erase_if(queue_, [&](const std::string& text) { return text.starts_with(begin); });
  std::erase_if(jobs_, [&](const auto& job) {
    const bool is_being_made = job.second.begun && !job.second.result;
    return job.first.starts_with(begin) && !is_being_made;
  });
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

std::shared_ptr<const Compiled> CompilePool::compile(const KernelSpec& spec,
                                                     const TuneCandidate& candidate) const {
  TraceSpan span(trace_, "compile");
  auto made = std::make_shared<const Compiled>(compile_candidate(target_, spec, candidate));
  if (span.is_on()) {
    span.name(candidate.config.to_text());
    span.argument("template", std::string(candidate.family.kernel_template->name()));
    span.argument("spec", to_problem_text(spec));
    if (made->fault) span.argument("fault", made->fault->reason);
  }
  return made;
}

// Compiles the job at the head of the queue. The lock is released during the compilation.
void CompilePool::compile_first(std::unique_lock<std::mutex>* lock) {
  Job& job = jobs_.at(queue_.front());
  queue_.pop_front();
  job.begun = true;
  lock->unlock();
  auto result = compile(job.spec, job.candidate);
  lock->lock();
  job.result = std::move(result);
  num_compiled_ += job.result->image ? 1 : 0;
  finished_.notify_all();
}

}  // namespace attune
