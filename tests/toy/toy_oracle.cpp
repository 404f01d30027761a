// SPDX-License-Identifier: Apache-2.0
// The oracle of the toy op: both outputs on the host, row by row.
#include "runtime/operands/operands.hpp"
#include "tests/toy/toy.hpp"
#include "tuner/oracles/oracle.hpp"

namespace attune::toy {
namespace {

struct ExpectedOutput {
  OperandSpec operand;
  std::vector<std::vector<float>> batches;  // [rows, heads, columns] each
};

class ToyExpectation final : public Expectation {
 public:
  explicit ToyExpectation(const OracleBench& bench) : bench_(bench) {
    const Operands& operands = bench_.inputs.set(0);
    for (const OperandSpec& output : operands_of(bench_.problem)) {
      if (!output.written) continue;
      ExpectedOutput expected{output, {}};
      const float sign = output.role == Role::kO ? 1 : -1;
      for (int64_t b = 0; b < output.batch; ++b) {
        std::vector<float> values = rows(output, operands.q, b);
        const std::vector<float> y = rows(output, operands.k, b);
        for (size_t i = 0; i < values.size(); ++i) values[i] += sign * y[i];
        expected.batches.push_back(std::move(values));
      }
      expected_.push_back(std::move(expected));
    }
  }

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    Comparison comparison(bench_.problem);
    for (const auto& [output, batches] : expected_)
      for (int64_t b = 0; b < output.batch; ++b)
        compare(output, batches[static_cast<size_t>(b)],
                rows(output, operands.*tensor_of(output.role), b), b, &comparison);
    return comparison.result();
  }

 private:
  std::vector<float> rows(const OperandSpec& operand, const OperandView& view,
                          int64_t batch) const {
    return tensor_rows(bench_.device, operand, view, batch, 0, operand.rows);
  }

  static void compare(const OperandSpec& output, const std::vector<float>& want,
                      const std::vector<float>& got, int64_t batch, Comparison* comparison) {
    for (int64_t row = 0; row < output.rows; ++row)
      for (int64_t head = 0; head < output.heads; ++head) {
        const auto at = static_cast<size_t>((row * output.heads + head) * output.columns);
        comparison->add_row(&want[at], &got[at], static_cast<int>(output.columns),
                            {batch, row, head});
      }
  }

  const OracleBench bench_;
  std::vector<ExpectedOutput> expected_;
};

class ToyOracle final : public Oracle {
 public:
  Op op() const override { return kToy; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<ToyExpectation>(bench);
  }
};

const ToyOracle oracle;
[[maybe_unused]] const bool registered = (add_oracle(oracle), true);

}  // namespace
}  // namespace attune::toy
