// SPDX-License-Identifier: Apache-2.0
// The oracle of op index_scores: float64 on the host, for some rows and keys. The allowed error is
// relative to the sum of the magnitudes of all terms, since terms of either sign may cancel.
#include "tuner/oracles/oracles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace attune {
namespace {

constexpr int64_t kMostRows = 12,
                  kMostKeys = 600;  // that are checked per batch entry and head of k
// Tensor cores add the products of 8-bit floats with fewer bits than fp32 has.
constexpr double kUnit = 0x1p-17, kUnitOf8Bits = 0x1p-11;

class IndexScoresExpectation final : public Expectation {
 public:
  explicit IndexScoresExpectation(const OracleBench& bench) : bench_(bench) {}

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    const Problem& p = bench_.problem;
    error_ = {};
    if (p.seqlen_kv == 0) return error_;
    const int64_t step = std::max<int64_t>(1, p.seqlen_q / kMostRows);
    for (int64_t batch = 0; batch < p.batch; ++batch)
      for (int head = 0; head < p.num_heads_kv; ++head)
        for (int64_t back = 0; back < p.seqlen_q && !error_.wrong; back += step)
          check_row(operands, {batch, p.seqlen_q - 1 - back, head});
    error_.mean = error_.max;
    return error_;
  }

 private:
  std::vector<float> row_of(Role role, const Operands& operands, int64_t batch, int64_t head,
                            int64_t row) const {
    for (const OperandSpec& tensor : operands_of(bench_.problem))
      if (tensor.role == role)
        return head_rows(bench_.device, tensor, operands.*tensor_of(role), batch, head, row,
                         row + 1);
    return {};
  }

  void check_row(const Operands& operands, const RowPlace& at) {
    const Problem& p = bench_.problem;
    const int ratio = p.num_heads_q / p.num_heads_kv;
    std::vector<std::vector<float>> q;
    for (int head = 0; head < ratio; ++head)
      q.push_back(row_of(Role::kQ, operands, at.batch, at.head * ratio + head, at.row));
    const std::vector<float> got = row_of(Role::kO, operands, at.batch, at.head, at.row);
    const int64_t end = keys_of(at), step = std::max<int64_t>(1, p.seqlen_kv / kMostKeys) | 1;
    const auto look = [&](int64_t key) {
      const float found = got[static_cast<size_t>(key)];
      if (key < end)
        compare(at, key, found, q, row_of(Role::kK, operands, at.batch, at.head, key));
      else if (found != -INFINITY)
        blame(at, key, found, "-infinity, since the key is hidden");
    };
    for (int64_t key = 0; key < p.seqlen_kv && !error_.wrong; key += step) look(key);
    for (int64_t key = std::max<int64_t>(0, end - 20); key < std::min(end + 20, p.seqlen_kv); ++key)
      look(key);
    look(p.seqlen_kv - 1);
  }

  void compare(const RowPlace& at, int64_t key, float found,
               const std::vector<std::vector<float>>& q, const std::vector<float>& k) {
    const Problem& p = bench_.problem;
    double sum = 0, terms = 0;
    for (size_t head = 0; head < q.size(); ++head) {
      double product = 0, magnitudes = 0;
      for (size_t i = 0; i < k.size(); ++i) {
        const double term = static_cast<double>(q[head][i]) * static_cast<double>(k[i]);
        product += term;
        magnitudes += std::fabs(term);
      }
      const double weight = bench_.inputs.factor(
          Role::kQScale, at.batch,
          at.head * static_cast<int64_t>(q.size()) + static_cast<int64_t>(head), at.row);
      sum += weight * std::max(0.0, product);
      terms += std::fabs(weight) * magnitudes;
    }
    const bool narrow = is_8_bit(p.dtype_kv);
    const double factor =
        narrow ? static_cast<double>(bench_.inputs.factor(Role::kKScale, at.batch, at.head, key))
               : 1;
    const double allowed = (narrow ? kUnitOf8Bits : kUnit) * factor * terms + 1e-30;
    const double ratio = std::fabs(found - factor * sum) / allowed;
    if (!(ratio <= 1))
      blame(at, key, found, fmt::format("{} within {:.3g}", factor * sum, allowed));
    else
      error_.max = std::max(error_.max, ratio);
  }

  void blame(const RowPlace& at, int64_t key, float found, const std::string& wanted) {
    error_.max = 2;
    error_.wrong = fmt::format("batch {}, row {}, head {}, key {} is {}; it should be {}", at.batch,
                               at.row, at.head, key, found, wanted);
  }

  // Returns the number of keys that the row sees.
  int64_t keys_of(const RowPlace& at) const {
    const Problem& p = bench_.problem;
    const int64_t head = at.head * (p.num_heads_q / p.num_heads_kv);
    const int64_t length =
        std::bit_cast<int>(bench_.inputs.factor(Role::kVScale, at.batch, head, at.row));
    const int64_t diagonal =
        at.row + 1 + (p.mask == Mask::kCausalBottomRight ? p.seqlen_kv - p.seqlen_q : 0);
    const int64_t shown = p.mask == Mask::kNone ? p.seqlen_kv : std::max<int64_t>(0, diagonal);
    return std::min({shown, p.seqlen_kv, length});
  }

  const OracleBench bench_;
  CheckError error_;
};

class IndexScoresOracle final : public Oracle {
 public:
  Op op() const override { return Op::kIndexScores; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<IndexScoresExpectation>(bench);
  }
};

}  // namespace

const Oracle& index_scores_oracle() {
  static const IndexScoresOracle instance;
  return instance;
}

}  // namespace attune
