// SPDX-License-Identifier: Apache-2.0
// Capture: writes the problems of a program and their numbers of calls to a file, so that `attune
// tune --captured FILE` can tune exactly those. It writes one JSON line per unique problem and
// process: {"problem": "dtype=bf16,head_dim=128,…"}, with the texts of its programs as "score_mod"
// and "mask_mod". Later lines of the same problem add "calls", "recorded" for those into CUDA
// graphs, whose replays nobody counts, and the "rung" that chose their kernel. "%p" in the file's
// name is the id of the process, so that forked and other workers have files of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "generator/core/problem/problem.hpp"
#include "runtime/engine/engine_options.hpp"

namespace attune {

// The calls of one problem by plans of one rung.
struct CallCounts {
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> recorded{0};
};

// Counts a call. run (plan.hpp) calls this, from any thread. Now and then also writes the counts of
// all captures, because servers seldom end by themselves.
void count_call(CallCounts* counts, bool is_recorded);

// Thread-safe. Processes that share the file write whole lines. Without a file, does nothing.
class Capture {
 public:
  explicit Capture(std::filesystem::path file);
  ~Capture();  // writes the counts
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Writes the problem; called when a plan is made. Logs once if the file cannot be written.
  void note(const Problem& problem);
  // Returns the counts of a plan's problem and rung; null without a file. They may outlive the
  // Capture.
  std::shared_ptr<CallCounts> counts_of(const Problem& problem, Rung rung);
  // Appends the calls since the last time. Also called at the end of the process and by count_call.
  void write_counts();

 private:
  // Called around a fork: a child may not find a lock that no thread of it holds.
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();
  struct Counted {
    Problem problem;
    Rung rung = Rung::kDefaultConfig;
    std::shared_ptr<CallCounts> counts;
    int64_t written_calls = 0, written_recorded = 0;
  };
  void write(const std::string& line);

  const std::filesystem::path file_;
  std::mutex mutex_;
  std::unordered_set<std::string> seen_;
  std::map<std::pair<std::string, Rung>, Counted> counted_;  // by the problem's text
  bool failed_ = false;
};

}  // namespace attune
