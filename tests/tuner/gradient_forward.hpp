// SPDX-License-Identifier: Apache-2.0
// A forward pass of attention in float64 with operands that can be changed, element by element, to
// compute gradients as differences. Used by gradient_oracle_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "generator/core/problem/visibility.hpp"
#include "generator/score/features/score_operands.hpp"
#include "tuner/oracles/gradient_pairs.hpp"
#include "tuner/oracles/host_scores.hpp"

namespace attune::testing {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Place {
  int64_t batch = 0;
  int head = 0;
  int64_t row = 0, key = 0;
};

// A tensor, [batch, rows, heads, columns].
struct Host {
  OperandSpec spec;
  std::vector<double> values;
  double* row(int64_t batch, int64_t row, int64_t head) {
    return &values[static_cast<size_t>(((batch * spec.rows + row) * spec.heads + head) *
                                       spec.columns)];
  }
};

// A forward pass in float64, and a number that depends on its o and lse.
class Forward {
 public:
  Forward(const Device& device, const Problem& problem, attune::Inputs* inputs)
      : problem_(problem),
        program_(score_program(problem)),
        args_(score_args(problem, score_captures(problem), &inputs->scores())),
        loads_(score::loads_of(program_, args_)) {
    for (const OperandSpec& spec : operands_of(problem))
      if (kind_of(spec.role) == OperandKind::kTensor && !spec.written)
        tensors_.push_back(read(device, spec, inputs->set(0).*tensor_of(spec.role)));
    const int64_t rows = problem.batch * problem.num_heads_q * problem.seqlen_q;
    const float* const dlse = inputs->set(0).dlse;
    dlse_.assign(dlse, dlse + rows);
    const score::Load load = loads_.load;
    loads_.load = [this, load](int capture, std::span<const int64_t> indices) {
      return load(capture, indices) + (capture == moved_capture && moves(at_) ? moved_by : 0.0);
    };
    write_results(inputs->set(0));
  }

  Host& of(Role role) {
    for (Host& tensor : tensors_)
      if (tensor.spec.role == role) return tensor;
    throw std::logic_error("there is no such tensor");
  }

  // Returns <dout, o> + <dlse, lse>.
  double value() {
    double sum = 0;
    for_rows([&](int64_t batch, int head, int64_t row) {
      const double lse = run_row(batch, head, row);
      if (lse == -kInfinity) return;
      const double* const dout = of(Role::kDout).row(batch, row, head);
      for (int i = 0; i < problem_.head_dim_v; ++i) sum += dout[i] * o_[static_cast<size_t>(i)];
      sum += lse * double{dlse_[place(batch, head, row)]};
    });
    return sum;
  }

  // Changes loads from a capture of the program, at the places for which `moves` is true, or the
  // sink of a head.
  int moved_capture = -1, moved_sink = -1;
  double moved_by = 0;
  std::function<bool(const Place&)> moves = [](const Place&) { return true; };

 private:
  static Host read(const Device& device, const OperandSpec& spec, const OperandView& view) {
    Host host{spec, {}};
    for (int64_t batch = 0; batch < spec.batch; ++batch)
      for (const float value : tensor_rows(device, spec, view, batch, 0, spec.rows))
        host.values.push_back(double{value});
    return host;
  }

  void for_rows(const std::function<void(int64_t, int, int64_t)>& visit) const {
    for (int64_t batch = 0; batch < problem_.batch; ++batch)
      for (int head = 0; head < problem_.num_heads_q; ++head)
        for (int64_t row = 0; row < problem_.seqlen_q; ++row) visit(batch, head, row);
  }
  size_t place(int64_t batch, int head, int64_t row) const {
    return static_cast<size_t>((batch * problem_.num_heads_q + head) * problem_.seqlen_q + row);
  }

  double score(int64_t batch, int head, int64_t row, int64_t key) {
    const int kv_head = head / (problem_.num_heads_q / problem_.num_heads_kv);
    const double product = dot(of(Role::kQ).row(batch, row, head),
                               of(Role::kK).row(batch, key, kv_head), problem_.head_dim_qk) *
                           double{problem_.scale()};
    at_ = {batch, head, row, key};
    return score::evaluate(
        program_,
        {product, static_cast<int32_t>(batch), head, kv_head, static_cast<int32_t>(row),
         static_cast<int32_t>(key), static_cast<int32_t>(problem_.seqlen_q),
         static_cast<int32_t>(problem_.seqlen_kv), problem_.head_dim_qk},
        loads_);
  }

  double sink(int head) const {
    if (problem_.scores.sinks == ScoreTensor::kNone) return -kInfinity;
    const double given =
        load_capture(capture_type(problem_.scores.sinks),
                     args_.captures[static_cast<size_t>(sinks_capture(problem_))].data, head);
    return given + (head == moved_sink ? moved_by : 0);
  }

  // Returns lse; o_ gets the row of o.
  double run_row(int64_t batch, int head, int64_t row) {
    const KeyInterval<int64_t> keys = visible_keys(problem_, row);
    const int kv_head = head / (problem_.num_heads_q / problem_.num_heads_kv);
    const int64_t end = std::min(keys.last + 1, problem_.seqlen_kv);
    std::vector<double> scores;
    double highest = sink(head);
    for (int64_t key = std::max<int64_t>(keys.first, 0); key < end; ++key) {
      scores.push_back(score(batch, head, row, key));
      highest = std::max(highest, scores.back());
    }
    o_.assign(static_cast<size_t>(problem_.head_dim_v), 0);
    if (highest == -kInfinity) return -kInfinity;
    double sum = std::exp(sink(head) - highest);
    for (const double one : scores) sum += std::exp(one - highest);
    for (size_t i = 0; i < scores.size(); ++i) {
      const int64_t key = std::max<int64_t>(keys.first, 0) + static_cast<int64_t>(i);
      const double weight =
          std::exp(scores[i] - highest) / sum * kept_of(problem_, batch, head, row, key);
      const double* const v = of(Role::kV).row(batch, key, kv_head);
      for (size_t c = 0; c < o_.size(); ++c) o_[c] += weight * v[c];
    }
    return highest + std::log(sum);
  }

  // Writes o and lse for the oracle.
  void write_results(const Operands& set) {
    for_rows([&](int64_t batch, int head, int64_t row) {
      set.lse[place(batch, head, row)] = static_cast<float>(run_row(batch, head, row));
      float* const to = static_cast<float*>(set.o.data) + batch * set.o.batch_stride +
                        head * set.o.head_stride + row * set.o.row_stride;
      for (size_t i = 0; i < o_.size(); ++i) to[i] = static_cast<float>(o_[i]);
    });
  }

  const Problem& problem_;
  const score::Program program_;
  const ScoreArgs args_;
  score::Loads loads_;
  std::vector<Host> tensors_;
  std::vector<float> dlse_;
  std::vector<double> o_;
  Place at_;
};

}  // namespace attune::testing
