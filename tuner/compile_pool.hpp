// SPDX-License-Identifier: Apache-2.0
// CompilePool: makes the candidates of one KernelSpec on a few threads, ahead of the device that
// measures them. All shapes of the spec share the results: each candidate is compiled at most once.
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

#include "tuner/tune_target.hpp"

namespace attune {

struct Compiled {
  std::optional<KernelImage> image;  // kept with a fault that the image itself shows (spills)
  std::optional<Fault> fault;        // compiler error, or an image that must not be measured
};

class CompilePool {
 public:
  // threads = 0: one fewer than the machine has, at least one. Where the system grants fewer, those
  // do the work; where it grants none, `wait` compiles on the caller's thread.
  CompilePool(const TuneTarget& target, KernelSpec spec, int threads = 0);
  ~CompilePool();  // waits only for compilations that have begun
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  void submit(const TuneCandidate& candidate);  // no-op for one that was submitted before
  // The result, first in line from now on; nullptr when it is not there after `timeout_s`.
  std::shared_ptr<const Compiled> wait(const TuneCandidate& candidate, double timeout_s);
  void cancel_pending();
  int num_compiled() const;

 private:
  struct Job {
    TuneCandidate candidate;
    std::shared_ptr<const Compiled> result;
    bool begun = false;
  };
  void work();
  void compile_first(std::unique_lock<std::mutex>* lock);

  const TuneTarget& target_;
  const KernelSpec spec_;
  mutable std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable finished_;
  std::map<std::string, Job> jobs_;
  std::deque<std::string> queue_;
  bool closing_ = false;
  int num_compiled_ = 0;
  std::vector<std::thread> threads_;  // last: they use what stands above
};

}  // namespace attune
