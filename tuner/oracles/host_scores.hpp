// SPDX-License-Identifier: Apache-2.0
// HostScores: what the score features of a problem make of a score, in float64, and how fast that moves with the score. Captures are
// read back from the device once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "generator/core/score/evaluate.hpp"
#include "generator/core/score_operands.hpp"
#include "runtime/device.hpp"

namespace attune {

class HostScores {
 public:
  struct Score {
    double value;  // -infinity where it is hidden
    // Of `value` by the scaled score, a quotient of differences; or, of problems that ask for the gradient of a load, by what is
    // loaded, from the program's derivative.
    double slope = 1;
  };

  // `operands`: contiguous, of the problem's extents. The problem must outlive it.
  HostScores(const Device& device, const Problem& problem, const ScoreOperands& operands);
  HostScores(const HostScores&) = delete;
  HostScores& operator=(const HostScores&) = delete;

  // The sink of a head, of a problem that has sinks.
  double sink(int head) const;

  // Lengths that programs see: those of a request over caches.
  struct Lengths {
    int64_t q, kv;
  };

  Score at(double score, int64_t batch, int head, int64_t row, int64_t key,
           const Lengths& lengths) const;
  // With the lengths of the problem.
  Score at(double score, int64_t batch, int head, int64_t row, int64_t key) const {
    return at(score, batch, head, row, key, {problem_.seqlen_q, problem_.seqlen_kv});
  }

 private:
  const Problem& problem_;
  const bool scored_, bends_;  // bends_: the slope is not 1
  score::Program program_;
  std::vector<std::vector<char>> captures_;
  ScoreArgs args_{};
  score::Loads loads_;
  std::optional<ScoreHalf> by_load_;
  ScoreArgs args_by_load_{};
  score::Loads loads_by_load_;
};

}  // namespace attune
