// SPDX-License-Identifier: Apache-2.0
// HostScores: applies the score features of a problem to a score, in float64, and returns the
// derivative too. Captures are read back from the device once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "generator/launch_plan.hpp"
#include "generator/score/features/score_operands.hpp"
#include "generator/score/language/evaluate.hpp"
#include "runtime/engine/device.hpp"
#include "templates/shared/dropout.h"

namespace attune {

class HostScores {
 public:
  struct Score {
    double value;  // -infinity if it is hidden
    // The derivative of `value` by the scaled score, as a difference quotient. For a problem that
    // asks for the gradient of a load, the derivative by the loaded value, from the program's
    // derivative.
    double slope = 1;
  };

  // `operands`: contiguous, with the problem's extents. The problem must outlive this object.
  HostScores(const Device& device, const Problem& problem, const ScoreOperands& operands);
  HostScores(const HostScores&) = delete;
  HostScores& operator=(const HostScores&) = delete;

  // Returns the sink of a head. The problem must have sinks.
  double sink(int head) const;

  // The lengths that programs see; for caches, the request's lengths.
  struct Lengths {
    int64_t q, kv;
  };

  Score at(double score, int64_t batch, int head, int64_t row, int64_t key,
           const Lengths& lengths) const;
  // Calls at() with the problem's lengths.
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

// The factor with which dropout multiplies P of one row and key: 0, or 1 / (1 - dropout). Seed and
// offset are the defaults of a call that gives neither. Used by oracles.

inline double kept_of(const Problem& problem, int64_t batch, int64_t head, int64_t row,
                      int64_t key) {
  if (problem.dropout == 0) return 1;
  const auto of_all = static_cast<unsigned>(batch * problem.num_heads_q + head);
  return static_cast<double>(dropout_factor(dropout_args(problem, nullptr), of_all,
                                            static_cast<int>(row), static_cast<int>(key)));
}

}  // namespace attune
