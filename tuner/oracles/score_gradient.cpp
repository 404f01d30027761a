// SPDX-License-Identifier: Apache-2.0
// See oracles.hpp. Each checked line of dscores is summed over all rows and keys that
// contribute to it.
#include "tuner/oracles/oracles.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "generator/core/problem/visibility.hpp"
#include "tuner/oracles/gradient_pairs.hpp"

namespace attune {
namespace {

// The host computes smaller problems whole; for larger ones it checks some elements.
constexpr double kMostFlops = 2e8;

// A line of dscores with expected values of some of its columns.
struct ExpectedLine {
  RowPlace at;
  std::vector<int64_t> columns;
  std::vector<double> sums{};
};

class ScoreGradientExpectation final : public Expectation {
 public:
  explicit ScoreGradientExpectation(const OracleBench& bench)
      : bench_(bench),
        problem_(bench.problem),
        layout_(layout_of(problem_.backward.score_gradient)),
        pairs_(bench_) {
    choose_lines(useful_flops(problem_) <= kMostFlops);
    const Problem& p = problem_;
    const int ratio = p.num_heads_q / p.num_heads_kv;
    for (int64_t batch = 0; batch < p.batch; ++batch)
      for (int head_kv = 0; head_kv < p.num_heads_kv; ++head_kv)
        for (int head = head_kv * ratio; head < (head_kv + 1) * ratio; ++head)
          add_head(batch, head_kv, head);
  }

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    Comparison comparison(problem_, weights_on(bench_.device.target()));
    const OperandSpec& gradient = pairs_.spec_of(Role::kDscores);
    for (const ExpectedLine& line : lines_) {
      const std::vector<float> all = tensor_rows(bench_.device, gradient, operands.dscores,
                                                 line.at.batch, line.at.row, line.at.row + 1);
      std::vector<float> want, got;
      for (size_t i = 0; i < line.columns.size(); ++i) {
        want.push_back(static_cast<float>(line.sums[i]));
        got.push_back(all[static_cast<size_t>(line.at.head * gradient.columns + line.columns[i])]);
      }
      comparison.add_row(want.data(), got.data(), static_cast<int>(want.size()), line.at);
    }
    return comparison.result();
  }

 private:
  bool repeated(Repeats axis) const { return repeats(problem_.backward.repeats, axis); }
  // Slopes and sinks have one column per head.
  bool by_column() const {
    return layout_ == ScoreGradient::kAlibi || layout_ == ScoreGradient::kSinks;
  }

  void choose_lines(bool all) {
    const OperandSpec& gradient = pairs_.spec_of(Role::kDscores);
    if (gradient.empty()) return;
    const auto ends = [&](int64_t count) {
      std::vector<int64_t> chosen = places(count, true);
      if (!all && count > 2) chosen = {0, count - 1};
      return chosen;
    };
    const std::vector<int64_t> columns =
        by_column() ? ends(gradient.columns) : places(gradient.columns, all);
    for (const int64_t batch : ends(gradient.batch))
      for (const int64_t head : ends(gradient.heads))
        for (const int64_t row : places(gradient.rows, all))
          lines_.push_back({{batch, row, head}, columns, std::vector<double>(columns.size())});
  }

  bool takes(const ExpectedLine& line, int64_t batch, int head) const {
    const bool of_batch = layout_ == ScoreGradient::kRelativeBias ||
                          layout_ == ScoreGradient::kSinks || repeated(Repeats::kBatch) ||
                          line.at.batch == batch;
    const bool of_head = by_column() || repeated(Repeats::kHeads) || line.at.head == head;
    return of_batch && of_head;
  }

  void add_head(int64_t batch, int head_kv, int head) {
    if (std::none_of(lines_.begin(), lines_.end(),
                     [&](const ExpectedLine& line) { return takes(line, batch, head); }))
      return;
    const GradientPairs::QueryHead rows = pairs_.query_head(batch, head);
    const GradientPairs::KeyHead keys = pairs_.key_head(batch, head_kv);
    for (ExpectedLine& line : lines_) {
      if (!takes(line, batch, head)) continue;
      for (size_t i = 0; i < line.columns.size(); ++i) {
        if (by_column() && !repeated(Repeats::kHeads) && line.columns[i] != head) continue;
        line.sums[i] += part_of(rows, keys, batch, head, line.at.row, line.columns[i]);
      }
    }
  }

  // Returns what one head of one batch entry adds to an element of dscores, at a row and a column.
  double part_of(const GradientPairs::QueryHead& rows, const GradientPairs::KeyHead& keys,
                 int64_t batch, int head, int64_t row, int64_t column) const {
    const Problem& p = problem_;
    const auto dz = [&](int64_t i, int64_t j) {
      return pairs_.sees(i, j) ? gradient_at(rows, keys, batch, head, i, j) : 0.0;
    };
    double sum = 0;
    if (layout_ == ScoreGradient::kSinks) return of_sink(rows, head);
    if (layout_ == ScoreGradient::kRelativeBias) {
      for (int64_t i = 0; i < p.seqlen_q; ++i) {
        const int64_t j = column + i - (p.seqlen_q - 1);
        if (j >= 0 && j < p.seqlen_kv) sum += dz(i, j);
      }
      return sum;
    }
    const bool slopes = layout_ == ScoreGradient::kAlibi;
    const bool all_rows = slopes || repeated(Repeats::kRows);
    const bool all_keys = slopes || repeated(Repeats::kKeys);
    const int64_t ends = p.mask == Mask::kCausalTopLeft ? 0 : p.seqlen_kv - p.seqlen_q;
    for (int64_t i = all_rows ? 0 : row; i < (all_rows ? p.seqlen_q : row + 1); ++i)
      for (int64_t j = all_keys ? 0 : column; j < (all_keys ? p.seqlen_kv : column + 1); ++j)
        sum += dz(i, j) * (slopes ? -static_cast<double>(std::abs(i + ends - j)) : 1.0);
    return sum;
  }

  // Returns the gradient of the score; for a gradient by a loaded value, the gradient of that
  // value.
  double gradient_at(const GradientPairs::QueryHead& rows, const GradientPairs::KeyHead& keys,
                     int64_t batch, int head, int64_t row, int64_t key) const {
    const GradientPairs::Pair pair = pairs_.pair(rows, keys, batch, head, row, key);
    return is_of_load(problem_.backward.score_gradient) ? pair.ds : pair.dz;
  }

  double of_sink(const GradientPairs::QueryHead& rows, int head) const {
    const double sink = pairs_.scores().sink(head);
    double sum = 0;
    for (size_t i = 0; i < rows.lse.size(); ++i)
      if (rows.lse[i] != -std::numeric_limits<float>::infinity())
        sum -=
            std::exp(sink - static_cast<double>(rows.lse[i])) * static_cast<double>(rows.delta[i]);
    return sum;
  }

  const OracleBench bench_;
  const Problem& problem_;
  const ScoreGradient layout_;
  const GradientPairs pairs_;
  std::vector<ExpectedLine> lines_;
};

}  // namespace

std::unique_ptr<Expectation> expect_score_gradient(const OracleBench& bench) {
  return std::make_unique<ScoreGradientExpectation>(bench);
}

}  // namespace attune
