// SPDX-License-Identifier: Apache-2.0
// Reads operands back and computes pairs; see gradient_pairs.hpp.
#include "tuner/oracles/gradient_pairs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "generator/core/problem/visibility.hpp"
#include "tuner/oracles/host_scores.hpp"

namespace attune {
namespace {

constexpr int64_t kEnds = 16;     // rows, or keys, at each end
constexpr int64_t kBetween = 32;  // and spread between the ends
constexpr int64_t kRowsAtOnce = 1024;

HeadMatrix head_of(const Device& device, const OperandSpec& tensor, const OperandView& view,
                   int64_t batch, int64_t head) {
  HeadMatrix all{{}, tensor.columns};
  all.values.reserve(static_cast<size_t>(tensor.rows * tensor.columns));
  for (int64_t begin = 0; begin < tensor.rows; begin += kRowsAtOnce) {
    const int64_t end = std::min(begin + kRowsAtOnce, tensor.rows);
    const std::vector<float> rows = head_rows(device, tensor, view, batch, head, begin, end);
    all.values.insert(all.values.end(), rows.begin(), rows.end());
  }
  return all;
}

// Returns the typical size of a dot product if its terms had random signs.
double dot_of_terms(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i] * a[i] * b[i];
  return std::sqrt(sum);
}

}  // namespace

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<int64_t> places(int64_t count, bool all) {
  std::set<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i)
    if (all || i < kEnds || i >= count - kEnds) chosen.insert(i);
  for (int64_t i = 0; !all && count > 0 && i < kBetween; ++i)
    chosen.insert((count * (2 * i + 1) / (2 * kBetween) + 37 * i) % count);
  return {chosen.begin(), chosen.end()};
}

GradientPairs::GradientPairs(const OracleBench& bench)
    : bench_(bench),
      problem_(bench.problem),
      operands_(operands_of(problem_)),
      scores_(bench.device, problem_, bench.inputs.scores()) {}

const OperandSpec& GradientPairs::spec_of(Role role) const {
  return *std::find_if(operands_.begin(), operands_.end(),
                       [&](const OperandSpec& operand) { return operand.role == role; });
}

HeadMatrix GradientPairs::matrix(Role role, int64_t batch, int64_t head) const {
  return head_of(bench_.device, spec_of(role), bench_.inputs.set(0).*tensor_of(role), batch, head);
}

std::vector<float> GradientPairs::row_sums(Role role, int64_t batch, int64_t head) const {
  std::vector<float> sums(static_cast<size_t>(problem_.seqlen_q));
  const RowSumsView view = row_sums_of(bench_.inputs.set(0), role);  // contiguous
  if (view.data != nullptr && !sums.empty())
    bench_.device.copy_to_host(
        sums.data(), view.data + (batch * problem_.num_heads_q + head) * problem_.seqlen_q,
        static_cast<int64_t>(sums.size() * sizeof(float)));
  return sums;
}

GradientPairs::QueryHead GradientPairs::query_head(int64_t batch, int64_t head) const {
  QueryHead all{matrix(Role::kQ, batch, head),
                matrix(Role::kO, batch, head),
                matrix(Role::kDout, batch, head),
                row_sums(Role::kLse, batch, head),
                {},
                {}};
  const std::vector<float> dlse = row_sums(Role::kDlse, batch, head);
  for (int64_t row = 0; row < problem_.seqlen_q; ++row) {
    const double* const o = all.o.row(row);
    const double* const dout = all.dout.row(row);
    const auto of_lse = static_cast<double>(dlse[static_cast<size_t>(row)]);
    all.delta.push_back(dot(o, dout, problem_.head_dim_v) - of_lse);
    all.delta_terms.push_back(dot_of_terms(o, dout, problem_.head_dim_v) + std::fabs(of_lse));
  }
  return all;
}

GradientPairs::KeyHead GradientPairs::key_head(int64_t batch, int64_t head) const {
  return {matrix(Role::kK, batch, head), matrix(Role::kV, batch, head)};
}

GradientPairs::Pair GradientPairs::pair(const QueryHead& rows, const KeyHead& keys, int64_t batch,
                                        int head, int64_t row, int64_t key) const {
  const double lse = rows.lse[static_cast<size_t>(row)];
  const double score = dot(rows.q.row(row), keys.k.row(key), problem_.head_dim_qk) *
                       static_cast<double>(problem_.scale());
  const HostScores::Score made = scores_.at(score, batch, head, row, key);
  const double p = std::exp(made.value - lse);
  if (p == 0 || lse == -std::numeric_limits<double>::infinity()) return {};
  const double kept = kept_of(problem_, batch, head, row, key);
  const double dp = kept * dot(rows.dout.row(row), keys.v.row(key), problem_.head_dim_v);
  const double dp_terms =
      kept * dot_of_terms(rows.dout.row(row), keys.v.row(key), problem_.head_dim_v);
  const double dz = p * (dp - rows.delta[static_cast<size_t>(row)]);
  const double terms = dp_terms + rows.delta_terms[static_cast<size_t>(row)];
  return {p * kept, dz, dz * made.slope, p * terms * std::fabs(made.slope)};
}

bool GradientPairs::sees(int64_t row, int64_t key) const {
  const KeyInterval<int64_t> keys = visible_keys(problem_, row);
  return key >= keys.first && key <= keys.last;
}

std::vector<int64_t> GradientPairs::seen_keys(int64_t batch, int64_t row, int head_kv) const {
  std::vector<int64_t> keys;
  if (has_lists()) {
    for (const int key :
         bench_.inputs.cache().listed_keys(batch * problem_.seqlen_q + row, head_kv))
      keys.push_back(key);
    return keys;
  }
  for (int64_t key = 0; key < problem_.seqlen_kv; ++key)
    if (sees(row, key)) keys.push_back(key);
  return keys;
}

int GradientPairs::times_seen(int64_t batch, int64_t row, int head_kv, int64_t key) const {
  if (!has_lists()) return sees(row, key) ? 1 : 0;
  const std::vector<int64_t> keys = seen_keys(batch, row, head_kv);
  return static_cast<int>(std::count(keys.begin(), keys.end(), key));
}

}  // namespace attune
