// SPDX-License-Identifier: Apache-2.0
// Evaluates score programs on the host; see host_scores.hpp.
#include "tuner/oracles/host_scores.hpp"

#include <cmath>

namespace attune {

HostScores::HostScores(const Device& device, const Problem& problem, const ScoreOperands& operands)
    : problem_(problem),
      scored_(is_scored(problem)),
      bends_(bends_scores(problem)),
      program_(score_program(problem)) {
  if (!has_score_args(problem)) return;
  ScoreOperands on_host = operands;
  const std::vector<CaptureSpec> wanted = captures_of(problem);
  for (size_t i = 0; i < wanted.size(); ++i) {
    int64_t bytes = capture_bytes(wanted[i].type);
    for (const int64_t extent : wanted[i].extents) bytes *= extent;
    captures_.emplace_back(static_cast<size_t>(bytes));
    device.copy_to_host(captures_.back().data(), operands.captures[i].data, bytes);
    on_host.captures[i].data = captures_.back().data();
  }
  args_ = score_args(problem, score_captures(problem), &on_host);
  loads_ = score::loads_of(program_, args_);
  if (is_of_load(problem.backward.score_gradient)) by_load_ = score_slope_program(problem);
  if (!by_load_) return;
  const auto& [program, places] = *by_load_;
  args_by_load_ = args_;
  for (size_t i = 0; i < program.captures().size(); ++i)
    args_by_load_.captures[i] =
        args_.captures[score::place_of(static_cast<int>(i), places.captures)];
  for (size_t i = 0; i < program.scalars().size(); ++i)
    args_by_load_.scalars[i] = args_.scalars[score::place_of(static_cast<int>(i), places.scalars)];
  loads_by_load_ = score::loads_of(program, args_by_load_);
}

double HostScores::sink(int head) const {
  const auto capture = static_cast<size_t>(sinks_capture(problem_));
  return load_capture(capture_type(problem_.scores.sinks), captures_[capture].data(), head);
}

HostScores::Score HostScores::at(double score, int64_t batch, int head, int64_t row, int64_t key,
                                 const Lengths& lengths) const {
  if (!scored_) return {score};
  score::Point point{score,
                     static_cast<int32_t>(batch),
                     head,
                     head / (problem_.num_heads_q / problem_.num_heads_kv),
                     static_cast<int32_t>(row),
                     static_cast<int32_t>(key),
                     static_cast<int32_t>(lengths.q),
                     static_cast<int32_t>(lengths.kv),
                     problem_.head_dim_qk};
  const auto value_at = [&](double moved) {
    point.score = moved;
    return score::evaluate(program_, point, loads_);
  };
  const double value = value_at(score);
  if (is_of_load(problem_.backward.score_gradient)) {
    if (!by_load_ || !std::isfinite(value)) return {value};
    point.score = score;
    return {value, score::evaluate(by_load_->program, point, loads_by_load_)};
  }
  if (!bends_ || !std::isfinite(value)) return {value};
  const double step = 1e-7 * (1 + std::abs(score));  // rarely across a kink
  return {value, (value_at(score + step) - value_at(score - step)) / (2 * step)};
}

}  // namespace attune
