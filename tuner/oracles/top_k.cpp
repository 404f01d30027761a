// SPDX-License-Identifier: Apache-2.0
// The oracle of op top_k: sorts some rows of scores on the host. Lists must be equal.
#include "tuner/oracles/oracles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "generator/core/ops/ops.hpp"

namespace attune {
namespace {

constexpr int64_t kMostScores = int64_t{1} << 22;  // that are sorted per batch entry
constexpr int64_t kFewestRows = 8;

// Returns the list of a row by the definition: a stable sort of the keys that the row sees.
std::vector<int> expected_list(const float* scores, int64_t keys, int64_t length) {
  std::vector<int> list;
  for (int key = 0; key < keys; ++key)
    if (scores[key] != -std::numeric_limits<float>::infinity()) list.push_back(key);
  std::stable_sort(list.begin(), list.end(), [scores](int a, int b) {
    const bool nan = std::isnan(scores[a]), other_nan = std::isnan(scores[b]);
    return nan != other_nan ? nan : scores[a] > scores[b];
  });
  list.resize(std::min(list.size(), static_cast<size_t>(length)));
  std::sort(list.begin(), list.end());
  return list;
}

class TopKExpectation final : public Expectation {
 public:
  explicit TopKExpectation(const OracleBench& bench) : bench_(bench) {}

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    const Problem& p = bench_.problem;
    CheckError error;
    const int64_t rows = std::max(kFewestRows, kMostScores / std::max<int64_t>(1, p.seqlen_kv));
    const int64_t step = std::max<int64_t>(1, p.seqlen_q / rows);
    for (int64_t batch = 0; batch < p.batch; ++batch)
      for (int head = 0; head < p.num_heads_q; ++head)
        for (int64_t back = 0; back < p.seqlen_q && !error.wrong; back += step)
          error.wrong = fault_of(operands, {batch, p.seqlen_q - 1 - back, head});
    if (error.wrong) error.max = error.mean = 2;
    return error;
  }

 private:
  // Returns a sentence if the row's list or count is wrong.
  std::optional<std::string> fault_of(const Operands& operands, const RowPlace& at) const {
    const Problem& p = bench_.problem;
    const auto row_of = [&](const OperandSpec& tensor, const OperandView& view) {
      return head_rows(bench_.device, tensor, view, at.batch, at.head, at.row, at.row + 1);
    };
    const OperandList list = operands_of(p);
    const OperandSpec* tensors = list.begin();
    const std::vector<float> scores = row_of(tensors[0], operands.q);
    const std::vector<float> got = row_of(tensors[1], operands.o);
    const std::vector<int> want = expected_list(scores.data(), keys_of(at), keys_of_list(p));
    int count = 0;
    bench_.device.copy_to_host(
        &count, operands.lse + (at.batch * p.num_heads_q + at.head) * p.seqlen_q + at.row,
        sizeof count);
    const std::string place = fmt::format("batch {}, row {}, head {}", at.batch, at.row, at.head);
    if (count != static_cast<int>(want.size()))
      return fmt::format("{}: the count is {}; it should be {}", place, count, want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const int key = std::bit_cast<int>(got[i]), wanted = i < want.size() ? want[i] : -1;
      if (key != wanted)
        return fmt::format("{}: entry {} is {}; it should be {}", place, i, key, wanted);
    }
    return std::nullopt;
  }

  // Returns the number of keys that the row sees.
  int64_t keys_of(const RowPlace& at) const {
    const Problem& p = bench_.problem;
    const auto length = static_cast<int64_t>(
        std::bit_cast<int>(bench_.inputs.factor(Role::kVScale, at.batch, at.head, at.row)));
    const int64_t diagonal =
        at.row + 1 + (p.mask == Mask::kCausalBottomRight ? p.seqlen_kv - p.seqlen_q : 0);
    const int64_t shown = p.mask == Mask::kNone ? p.seqlen_kv : std::max<int64_t>(0, diagonal);
    return std::min({shown, p.seqlen_kv, length});
  }

  const OracleBench bench_;
};

class TopKOracle final : public Oracle {
 public:
  Op op() const override { return Op::kTopK; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<TopKExpectation>(bench);
  }
};

}  // namespace

const Oracle& top_k_oracle() {
  static const TopKOracle instance;
  return instance;
}

}  // namespace attune
