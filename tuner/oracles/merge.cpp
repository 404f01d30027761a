// SPDX-License-Identifier: Apache-2.0
// Merges two states on the host and compares; see oracles.hpp.
#include "tuner/oracles/oracles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attune {

double merged_row(const double* first, double first_lse, const double* second, double second_lse,
                  int count, double* o) {
  constexpr double kEmpty = -std::numeric_limits<double>::infinity();
  const bool has_first = first_lse != kEmpty, has_second = second_lse != kEmpty;
  const double largest = std::max(first_lse, second_lse);
  const double sum = std::exp(first_lse - largest) + std::exp(second_lse - largest);
  const double lse = has_first && has_second ? largest + std::log(sum) : largest;
  for (int i = 0; i < count; ++i)
    o[i] = (has_first ? std::exp(first_lse - lse) * first[i] : 0) +
           (has_second ? std::exp(second_lse - lse) * second[i] : 0);
  return lse;
}

namespace {

constexpr int64_t kRowsAtOnce = 256, kCheckedRows = 2048;  // rows per batch

// Checks chunks of rows of every batch, among them the first and the last, because kernels may fail
// to write these.
class MergeExpectation final : public Expectation {
 public:
  explicit MergeExpectation(const OracleBench& bench) : bench_(bench) {}

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    Comparison comparison(bench_.problem);
    const Problem& p = bench_.problem;
    const int64_t step = std::max(kRowsAtOnce, p.seqlen_q / (kCheckedRows / kRowsAtOnce));
    for (int64_t batch = 0; batch < p.batch; ++batch) {
      for (int64_t row = 0; row + kRowsAtOnce < p.seqlen_q; row += step)
        check_rows(operands, batch, row, row + kRowsAtOnce, &comparison);
      check_rows(operands, batch, std::max<int64_t>(0, p.seqlen_q - kRowsAtOnce), p.seqlen_q,
                 &comparison);
    }
    return comparison.result();
  }

 private:
  void check_rows(const Operands& operands, int64_t batch, int64_t begin, int64_t end,
                  Comparison* comparison) const {
    const Problem& p = bench_.problem;
    std::vector<float> tensors[3];  // [rows, heads, columns] each
    for (const OperandSpec& operand : operands_of(p))
      if (kind_of(operand.role) == OperandKind::kTensor)
        tensors[operand.role == Role::kQ   ? 0
                : operand.role == Role::kK ? 1
                                           : 2] =
            tensor_rows(bench_.device, operand, operands.*tensor_of(operand.role), batch, begin,
                        end);
    const auto columns = static_cast<size_t>(p.head_dim_qk);
    std::vector<double> first(columns), second(columns), o(columns);
    std::vector<float> want(columns), lse(static_cast<size_t>(end - begin));
    for (int head = 0; head < p.num_heads_q; ++head) {
      copy_lse(operands, batch, head, begin, &lse);
      for (int64_t row = begin; row < end; ++row) {
        const auto at = static_cast<size_t>((row - begin) * p.num_heads_q + head) * columns;
        std::copy_n(&tensors[0][at], columns, first.begin());
        std::copy_n(&tensors[1][at], columns, second.begin());
        const auto given = [&](Role role) {
          return static_cast<double>(bench_.inputs.factor(role, batch, head, row));
        };
        const double want_lse = merged_row(first.data(), given(Role::kQScale), second.data(),
                                           given(Role::kKScale), p.head_dim_qk, o.data());
        std::transform(o.begin(), o.end(), want.begin(),
                       [](double value) { return static_cast<float>(value); });
        comparison->add_row(want.data(), &tensors[2][at], p.head_dim_qk, {batch, row, head});
        comparison->add_lse(static_cast<float>(want_lse), lse[static_cast<size_t>(row - begin)],
                            {batch, row, head});
      }
    }
  }

  void copy_lse(const Operands& operands, int64_t batch, int64_t head, int64_t begin,
                std::vector<float>* lse) const {
    const Problem& p = bench_.problem;
    const int64_t first = (batch * p.num_heads_q + head) * p.seqlen_q + begin;
    bench_.device.copy_to_host(lse->data(), operands.lse + first,
                               static_cast<int64_t>(lse->size() * sizeof(float)));
  }

  const OracleBench bench_;
};

class MergeOracle final : public Oracle {
 public:
  Op op() const override { return Op::kMerge; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<MergeExpectation>(bench);
  }
};

}  // namespace

const Oracle& merge_oracle() {
  static const MergeOracle instance;
  return instance;
}

}  // namespace attune
