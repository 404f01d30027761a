// SPDX-License-Identifier: Apache-2.0
// See attention_backward.hpp; formulas as in generator/core/ops/attention_backward.cpp. o and lse need not be a forward's: each gradient
// is a function of what it is given.
#include "tuner/oracles/attention_backward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "generator/core/visibility.hpp"
#include "tuner/kept_part.hpp"
#include "tuner/oracles/host_scores.hpp"

namespace attune {
namespace {

constexpr double kMostFlops =
    4e8;                          // of the host, whole; beyond it some rows and keys are looked at
constexpr int64_t kEnds = 16;     // rows, or keys, at either end
constexpr int64_t kBetween = 32;  // and spread between them
constexpr int64_t kRowsAtOnce = 1024;

// One head of one tensor: [rows, columns].
struct Matrix {
  std::vector<double> values;
  int64_t columns = 0;
  const double* row(int64_t index) const { return values.data() + index * columns; }
};

Matrix head_of(const Device& device, const OperandSpec& tensor, const OperandView& view,
               int64_t batch, int64_t head) {
  Matrix all{{}, tensor.columns};
  all.values.reserve(static_cast<size_t>(tensor.rows * tensor.columns));
  for (int64_t begin = 0; begin < tensor.rows; begin += kRowsAtOnce) {
    const int64_t end = std::min(begin + kRowsAtOnce, tensor.rows);
    const std::vector<float> rows = tensor_rows(device, tensor, view, batch, begin, end);
    for (int64_t row = 0; row < end - begin; ++row) {
      const auto first = rows.begin() + (row * tensor.heads + head) * tensor.columns;
      all.values.insert(all.values.end(), first, first + tensor.columns);
    }
  }
  return all;
}

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add(double factor, const double* row, std::vector<double>* sum) {
  for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += factor * row[i];
}

// All of `count`, or both ends and some between them that no tile repeats.
std::vector<int64_t> places(int64_t count, bool all) {
  std::set<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i)
    if (all || i < kEnds || i >= count - kEnds) chosen.insert(i);
  for (int64_t i = 0; !all && i < kBetween; ++i)
    chosen.insert((count * (2 * i + 1) / (2 * kBetween) + 37 * i) % count);
  return {chosen.begin(), chosen.end()};
}

struct ExpectedRow {
  Role role;
  RowPlace place;
  std::vector<float> values;
};

class GradientExpectation final : public Expectation {
 public:
  explicit GradientExpectation(const OracleBench& bench)
      : bench_(bench),
        problem_(bench.problem),
        operands_(operands_of(problem_)),
        scores_(bench.device, problem_, bench.inputs.scores()) {
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
    launch(operands);
    Comparison comparison(problem_, weights_on(bench_.device.target()));
    for (const ExpectedRow& expected : expected_) {
      const OperandSpec& gradient = spec_of_role(expected.role);
      const std::vector<float> got =
          tensor_rows(bench_.device, gradient, operands.*tensor_of(expected.role),
                      expected.place.batch, expected.place.row, expected.place.row + 1);
      comparison.add_row(expected.values.data(), &got[expected.place.head * gradient.columns],
                         static_cast<int>(gradient.columns), expected.place);
    }
    return comparison.result();
  }

 private:
  struct QueryHead {
    Matrix q, o, dout;
    std::vector<float> lse, delta;
  };
  struct KeyHead {
    Matrix k, v;
  };
  struct Pair {
    double p = 0, ds = 0;
  };

  const OperandSpec& spec_of_role(Role role) const {
    return *std::find_if(operands_.begin(), operands_.end(),
                         [&](const OperandSpec& operand) { return operand.role == role; });
  }
  Matrix matrix(Role role, int64_t batch, int64_t head) const {
    return head_of(bench_.device, spec_of_role(role), bench_.inputs.set(0).*tensor_of(role), batch,
                   head);
  }
  std::vector<float> row_sums(Role role, int64_t batch, int64_t head) const {
    std::vector<float> sums(static_cast<size_t>(problem_.seqlen_q));
    const RowSumsView view = row_sums_of(bench_.inputs.set(0), role);  // contiguous
    if (view.data != nullptr && !sums.empty())
      bench_.device.copy_to_host(
          sums.data(), view.data + (batch * problem_.num_heads_q + head) * problem_.seqlen_q,
          static_cast<int64_t>(sums.size() * sizeof(float)));
    return sums;
  }

  QueryHead query_head(int64_t batch, int64_t head) const {
    QueryHead all{matrix(Role::kQ, batch, head), matrix(Role::kO, batch, head),
                  matrix(Role::kDout, batch, head), row_sums(Role::kLse, batch, head),
                  row_sums(Role::kDlse, batch, head)};
    for (int64_t row = 0; row < problem_.seqlen_q; ++row) {
      float& delta = all.delta[static_cast<size_t>(row)];
      delta =
          static_cast<float>(dot(all.o.row(row), all.dout.row(row), problem_.head_dim_v)) - delta;
    }
    return all;
  }

  Pair pair(const QueryHead& rows, const KeyHead& keys, int64_t batch, int head, int64_t row,
            int64_t key) const {
    const double lse = rows.lse[static_cast<size_t>(row)];
    const double score = dot(rows.q.row(row), keys.k.row(key), problem_.head_dim_qk) *
                         static_cast<double>(problem_.scale());
    const HostScores::Score made = scores_.at(score, batch, head, row, key);
    const double p = std::exp(made.value - lse);
    if (p == 0 || lse == -std::numeric_limits<double>::infinity()) return {};
    const double kept = kept_of(problem_, batch, head, row, key);
    const double dp = kept * dot(rows.dout.row(row), keys.v.row(key), problem_.head_dim_v);
    return {p * kept,
            p * (dp - static_cast<double>(rows.delta[static_cast<size_t>(row)])) * made.slope};
  }

  bool sees(int64_t row, int64_t key) const {
    const KeyInterval<int64_t> keys = visible_keys(problem_, row);
    return key >= keys.first && key <= keys.last;
  }

  void expect_head(int64_t batch, int head_kv, bool all) {
    const Problem& p = problem_;
    const int ratio = p.num_heads_q / p.num_heads_kv;
    const KeyHead keys{matrix(Role::kK, batch, head_kv), matrix(Role::kV, batch, head_kv)};
    std::vector<QueryHead> heads;
    for (int i = 0; i < ratio; ++i) heads.push_back(query_head(batch, head_kv * ratio + i));
    for (int i = 0; asks(p.gradients, Gradients::kQ) && i < ratio; ++i)
      if (all || i == 0 || i == ratio - 1)
        for (const int64_t row : places(p.seqlen_q, all))
          expect_row(heads[static_cast<size_t>(i)], keys, {batch, row, head_kv * ratio + i});
    if (asks(p.gradients, Gradients::kK) || asks(p.gradients, Gradients::kV))
      for (const int64_t key : places(p.seqlen_kv, all))
        expect_key(heads, keys, {batch, key, head_kv});
  }

  void expect_row(const QueryHead& rows, const KeyHead& keys, const RowPlace& at) {
    std::vector<double> dq(static_cast<size_t>(problem_.head_dim_qk));
    for (int64_t key = 0; key < problem_.seqlen_kv; ++key)
      if (sees(at.row, key))
        add(pair(rows, keys, at.batch, static_cast<int>(at.head), at.row, key).ds, keys.k.row(key),
            &dq);
    keep(Role::kDq, at, dq, static_cast<double>(problem_.scale()));
  }

  void expect_key(const std::vector<QueryHead>& heads, const KeyHead& keys, const RowPlace& at) {
    std::vector<double> dk(static_cast<size_t>(problem_.head_dim_qk)),
        dv(static_cast<size_t>(problem_.head_dim_v));
    const int first = static_cast<int>(at.head) * static_cast<int>(heads.size());
    for (size_t i = 0; i < heads.size(); ++i)
      for (int64_t row = 0; row < problem_.seqlen_q; ++row) {
        if (!sees(row, at.row)) continue;
        const Pair made = pair(heads[i], keys, at.batch, first + static_cast<int>(i), row, at.row);
        add(made.ds, heads[i].q.row(row), &dk);
        add(made.p, heads[i].dout.row(row), &dv);
      }
    if (asks(problem_.gradients, Gradients::kK))
      keep(Role::kDk, at, dk, static_cast<double>(problem_.scale()));
    if (asks(problem_.gradients, Gradients::kV)) keep(Role::kDv, at, dv, 1);
  }

  void keep(Role role, const RowPlace& at, const std::vector<double>& values, double factor) {
    ExpectedRow row{role, at, {}};
    for (const double value : values) row.values.push_back(static_cast<float>(factor * value));
    expected_.push_back(std::move(row));
  }

  const OracleBench bench_;
  const Problem& problem_;
  const OperandList operands_;
  const HostScores scores_;
  std::vector<ExpectedRow> expected_;
};

class AttentionBackwardOracle final : public Oracle {
 public:
  Op op() const override { return Op::kAttentionBackward; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<GradientExpectation>(bench);
  }
};

}  // namespace

const Oracle& attention_backward_oracle() {
  static const AttentionBackwardOracle instance;
  return instance;
}

}  // namespace attune
