// SPDX-License-Identifier: Apache-2.0
// The oracle of the gradients of attention: float64 on the host, from the definition. For large
// problems it checks only some rows and keys. For the formulas see
// generator/core/ops/attention_backward.cpp. o and lse need not be results of a forward pass,
// because each gradient is a function of all its inputs.
#include "tuner/oracles/oracles.hpp"

#include <cmath>
#include <set>

#include "tuner/oracles/gradient_pairs.hpp"
#include "tuner/oracles/parallel.hpp"

namespace attune {
namespace {

// The host computes smaller problems whole; for larger ones it checks some rows and keys.
constexpr double kMostFlops = 4e8;

void add(double factor, const double* row, std::vector<double>* sum) {
  for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += factor * row[i];
}

// A gradient's row, and the size that it would have if no terms cancelled.
struct Sums {
  std::vector<double> values, terms;

  explicit Sums(int columns)
      : values(static_cast<size_t>(columns)), terms(static_cast<size_t>(columns)) {}
  void add_pair(const GradientPairs::Pair& pair, const double* row) { add_pair(pair, 1, row); }
  void add_pair(const GradientPairs::Pair& pair, int times, const double* row) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += times * pair.ds * row[i];
      terms[i] += times * pair.terms * std::fabs(row[i]);
    }
  }
  double rms_of_terms() const {
    double square = 0;
    for (const double term : terms) square += term * term;
    return std::sqrt(square / static_cast<double>(terms.size()));
  }
};

struct ExpectedRow {
  Role role;
  RowPlace place;
  std::vector<float> values;
  double terms = 0;  // RMS of the terms
};

class GradientExpectation final : public Expectation {
 public:
  explicit GradientExpectation(const OracleBench& bench)
      : bench_(bench), problem_(bench.problem), pairs_(bench_) {
    const Problem& p = problem_;
    const bool all = useful_flops(p) <= kMostFlops;
    std::set<std::pair<int64_t, int64_t>> heads;  // batch entry, head of k
    for (int64_t batch = 0; batch < p.batch; ++batch)
      for (int64_t head = 0; head < p.num_heads_kv; ++head)
        if (all || (batch == 0 && head == 0) ||
            (batch == p.batch - 1 && head == p.num_heads_kv - 1))
          heads.emplace(batch, head);
    if (p.seqlen_q > 0 || p.seqlen_kv > 0)
      for (const auto& [batch, head] : heads) expect_head(batch, static_cast<int>(head), all);
  }

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    // Gradients that a kernel adds to begin at 0. With accumulate, the kernel adds twice.
    for (const OperandSpec& gradient : operands_of(problem_))
      if (gradient.added_to)
        bench_.device.fill(
            (operands.*tensor_of(gradient.role)).data, 0,
            contiguous_view(gradient).batch_stride * gradient.batch * dtype_bytes(gradient.dtype),
            nullptr);
    launch(operands);
    if (problem_.backward.accumulate) launch(operands);
    Comparison comparison(problem_, weights_on(bench_.device.target()));
    for (const ExpectedRow& expected : expected_) {
      const OperandSpec& gradient = pairs_.spec_of(expected.role);
      const std::vector<float> got =
          tensor_rows(bench_.device, gradient, operands.*tensor_of(expected.role),
                      expected.place.batch, expected.place.row, expected.place.row + 1);
      comparison.add_row(expected.values.data(), &got[expected.place.head * gradient.columns],
                         static_cast<int>(gradient.columns), expected.place, expected.terms);
    }
    return comparison.result();
  }

 private:
  using QueryHead = GradientPairs::QueryHead;
  using KeyHead = GradientPairs::KeyHead;

  void expect_head(int64_t batch, int head_kv, bool all) {
    const Problem& p = problem_;
    const int ratio = p.num_heads_q / p.num_heads_kv;
    const KeyHead keys = pairs_.key_head(batch, head_kv);
    std::vector<QueryHead> heads(static_cast<size_t>(ratio));
    for_each_index(ratio, [&](int64_t i) {
      heads[static_cast<size_t>(i)] = pairs_.query_head(batch, head_kv * ratio + i);
    });
    std::vector<RowPlace> rows;
    for (int i = 0; asks(p.backward.gradients, Gradients::kQ) && i < ratio; ++i)
      if (all || i == 0 || i == ratio - 1)
        for (const int64_t row : places(p.seqlen_q, all))
          rows.push_back({batch, row, head_kv * ratio + i});
    keep_each(rows, [&](const RowPlace& at) {
      const auto head = static_cast<size_t>(at.head - head_kv * ratio);
      return expected_row(heads[head], keys, at);
    });
    std::vector<RowPlace> of_keys;
    if (asks(p.backward.gradients, Gradients::kK) || asks(p.backward.gradients, Gradients::kV))
      for (const int64_t key : places(p.seqlen_kv, all)) of_keys.push_back({batch, key, head_kv});
    keep_each(of_keys, [&](const RowPlace& at) { return expected_key(heads, keys, at); });
  }

  // Makes the rows at all places on several threads, and keeps them in the order of the places.
  template <class Make>
  void keep_each(const std::vector<RowPlace>& all, const Make& make) {
    std::vector<std::vector<ExpectedRow>> made(all.size());
    for_each_index(static_cast<int64_t>(all.size()), [&](int64_t i) {
      made[static_cast<size_t>(i)] = make(all[static_cast<size_t>(i)]);
    });
    for (std::vector<ExpectedRow>& rows : made)
      for (ExpectedRow& row : rows) expected_.push_back(std::move(row));
  }

  std::vector<ExpectedRow> expected_row(const QueryHead& rows, const KeyHead& keys,
                                        const RowPlace& at) const {
    Sums dq(problem_.head_dim_qk);
    const int ratio = problem_.num_heads_q / problem_.num_heads_kv;
    for (const int64_t key : pairs_.seen_keys(at.batch, at.row, static_cast<int>(at.head) / ratio))
      dq.add_pair(pairs_.pair(rows, keys, at.batch, static_cast<int>(at.head), at.row, key),
                  keys.k.row(key));
    return {
        row_of(Role::kDq, at, dq.values, static_cast<double>(problem_.scale()), dq.rms_of_terms())};
  }

  std::vector<ExpectedRow> expected_key(const std::vector<QueryHead>& heads, const KeyHead& keys,
                                        const RowPlace& at) const {
    Sums dk(problem_.head_dim_qk);
    std::vector<double> dv(static_cast<size_t>(problem_.head_dim_v));
    const int first = static_cast<int>(at.head) * static_cast<int>(heads.size());
    for (int64_t row = 0; row < problem_.seqlen_q; ++row) {
      const int times = pairs_.times_seen(at.batch, row, static_cast<int>(at.head), at.row);
      for (size_t i = 0; times > 0 && i < heads.size(); ++i) {
        const GradientPairs::Pair made =
            pairs_.pair(heads[i], keys, at.batch, first + static_cast<int>(i), row, at.row);
        dk.add_pair(made, times, heads[i].q.row(row));
        add(times * made.p, heads[i].dout.row(row), &dv);
      }
    }
    if (problem_.cache.v_in_k) return {latent_row(at, dk, dv)};
    std::vector<ExpectedRow> made;
    if (asks(problem_.backward.gradients, Gradients::kK))
      made.push_back(row_of(Role::kDk, at, dk.values, static_cast<double>(problem_.scale()),
                            dk.rms_of_terms()));
    if (asks(problem_.backward.gradients, Gradients::kV))
      made.push_back(row_of(Role::kDv, at, dv, 1));
    return made;
  }

  // Returns the gradient of a row of K whose first columns are V as well.
  ExpectedRow latent_row(const RowPlace& at, const Sums& dk, const std::vector<double>& dv) const {
    const auto scale = static_cast<double>(problem_.scale());
    std::vector<double> sums;
    for (size_t i = 0; i < dk.values.size(); ++i)
      sums.push_back(scale * dk.values[i] + (i < dv.size() ? dv[i] : 0));
    return row_of(Role::kDk, at, sums, 1, std::fabs(scale) * dk.rms_of_terms());
  }

  ExpectedRow row_of(Role role, const RowPlace& at, const std::vector<double>& values,
                     double factor, double terms = 0) const {
    if (problem_.backward.accumulate) factor *= 2;
    ExpectedRow row{role, at, {}, std::fabs(factor) * terms};
    for (const double value : values) row.values.push_back(static_cast<float>(factor * value));
    return row;
  }

  const OracleBench bench_;
  const Problem& problem_;
  const GradientPairs pairs_;
  std::vector<ExpectedRow> expected_;
};

class AttentionBackwardOracle final : public Oracle {
 public:
  Op op() const override { return Op::kAttentionBackward; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    if (bench.problem.backward.score_gradient != ScoreGradient::kNone)
      return expect_score_gradient(bench);
    return std::make_unique<GradientExpectation>(bench);
  }
};

}  // namespace

const Oracle& attention_backward_oracle() {
  static const AttentionBackwardOracle instance;
  return instance;
}

}  // namespace attune
