// SPDX-License-Identifier: Apache-2.0
// CompilePool: compiles candidates on a few threads, ahead of the device that measures them. All
// shapes of a spec share the results: each candidate is compiled at most once.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tuner/search/tune_target.hpp"
#include "tuner/search/tune_trace.hpp"

namespace attune {

struct Compiled {
  // kept even with a fault, if the image itself shows it (spills)
  std::optional<KernelImage> image;
  std::optional<Fault> fault;  // compiler error, or an image that must not be measured
};

class CompilePool {
 public:
  // threads = 0: one fewer than the machine has, but at least one. If the system grants fewer
  // threads, the granted threads do the work. If it grants none, `wait` compiles on the caller's
  // thread.
  explicit CompilePool(const TuneTarget& target, int threads = 0, TuneTrace* trace = nullptr);
  ~CompilePool();  // waits only for compilations that have begun
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  // Appends a candidate to the queue. Does nothing if it was submitted before.
  void submit(const KernelSpec& spec, const TuneCandidate& candidate);
  // Moves these candidates to the head of the queue, in this order.
  void hasten(const KernelSpec& spec, const std::vector<TuneCandidate>& candidates);
  // Puts the candidate first and waits for its result. Returns nullptr if there is no result after
  // `timeout_s`.
  std::shared_ptr<const Compiled> wait(const KernelSpec& spec, const TuneCandidate& candidate,
                                       double timeout_s);
  void cancel_pending();
  // Drops this spec's results and waiting jobs, because nothing needs them soon.
  void forget(const KernelSpec& spec);
  int num_compiled() const;

 private:
  struct Job {
    KernelSpec spec;
    TuneCandidate candidate;
    std::shared_ptr<const Compiled> result;
    bool begun = false;
  };
  void work();
  void compile_first(std::unique_lock<std::mutex>* lock);
  std::shared_ptr<const Compiled> compile(const KernelSpec& spec,
                                          const TuneCandidate& candidate) const;
  // Returns the job, at the head of the queue unless it has begun. The caller holds the lock.
  Job& put_first(const KernelSpec& spec, const TuneCandidate& candidate);
  static std::string key(const KernelSpec& spec, const TuneCandidate& candidate);

  const TuneTarget& target_;
  TuneTrace* const trace_;
  mutable std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable finished_;
  std::map<std::string, Job> jobs_;
  std::deque<std::string> queue_;
  bool closing_ = false;
  int num_compiled_ = 0;
  std::vector<std::thread> threads_;  // last: they use the members above
};

}  // namespace attune
