// SPDX-License-Identifier: Apache-2.0
// Capture: writes the problems that a program asks plans for to a file, so that `attune tune
// --captured FILE` can tune exactly those. It writes one JSON line per unique problem and process:
// {"problem": "dtype=bf16,head_dim=128,…"}, with the texts of its programs as "score_mod" and
// "mask_mod". Called when plans are made, never inside run.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <unordered_set>

#include "generator/core/problem/problem.hpp"

namespace attune {

class Capture {
 public:
  explicit Capture(std::filesystem::path file) : file_(std::move(file)) {}
  // Writes the problem; does nothing if no file is named. Logs once if the file cannot be written.
  // Thread-safe. Processes that share the file write whole lines.
  void note(const Problem& problem);

 private:
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::unordered_set<std::string> seen_;
  bool failed_ = false;
};

}  // namespace attune
