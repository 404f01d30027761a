// SPDX-License-Identifier: Apache-2.0
// The rules that a kernel's result must keep; see attention_case.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tuner/fuzz/attention_case.hpp"

namespace attune::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// The error of a score from the tensor cores' accumulators, which cut addends off: per column and
// for a scale of 1, with operands around 1.
constexpr double kSumError = 1.5e-6;

// Returns the effective number of rows: the number of rows with equal errors that would scatter as
// much as the rows of `got` do.
double effective_rows(const AttentionResult& got, const AttentionResult& oracle, int64_t dim) {
  double sum = 0, squares = 0, row = 0;
  for (size_t i = 0; i < oracle.o.size(); ++i) {
    if (!std::isnan(oracle.o[i])) row += std::abs(got.o[i] - oracle.o[i]);
    if ((static_cast<int64_t>(i) + 1) % dim != 0) continue;
    sum += row;
    squares += row * row;
    row = 0;
  }
  return squares > 0 ? sum * sum / squares : 1;
}

std::string outside(const AttentionResult& got, const AttentionResult& oracle,
                    const Allowance& allowed) {
  for (size_t i = 0; i < oracle.o.size(); ++i)
    if (std::abs(got.o[i] - oracle.o[i]) > allowed.o[i])
      return fmt::format("element {} is {:.6g}, expected {:.6g} within {:.3g}", i, got.o[i],
                         oracle.o[i], allowed.o[i]);
  for (size_t i = 0; i < oracle.lse.size(); ++i) {
    const double error = std::abs(got.lse[i] - oracle.lse[i]);
    const double accepted = allowed.lse[i] + 1e-4 * std::max(1.0, std::abs(oracle.lse[i]));
    if (oracle.lse[i] != -kInf && error > accepted)
      return fmt::format("LSE {} is {:.6g}, expected {:.6g} within {:.3g}", i, got.lse[i],
                         oracle.lse[i], accepted);
  }
  return {};
}

// Checks each element against the error that the rounding of P and the tensor cores' accumulator
// can cause. Then checks the mean against the twin's. The bound is wider if there are few rows, or
// few rows with errors, because the twin's mean is then uncertain.
std::string verdict_8_bits(const AttentionCase& c, const AttentionResult& got) {
  Allowance allowed;
  const AttentionResult oracle = c.oracle(&allowed);
  const AttentionResult twin = c.twin();
  const Errors kernel = compare(got, oracle);
  if (!kernel.finite)
    return "NaN or infinity in O or LSE, or a row that should be empty or NaN and is not";
  if (std::string broken = outside(got, oracle, allowed); !broken.empty()) return broken;
  const double factor = 1.2 + 3 / std::sqrt(effective_rows(twin, oracle, c.problem.head_dim_v));
  const double accepted = factor * compare(twin, oracle).mean + allowed.mean_noise + 1e-6;
  if (kernel.mean > accepted)
    return fmt::format("mean error {:.3g} is above {:.3g}, {:.2f} x the twin's and noise",
                       kernel.mean, accepted, factor);
  return {};
}

}  // namespace

Errors compare(const AttentionResult& got, const AttentionResult& oracle) {
  Errors errors;
  double sum = 0;
  for (size_t i = 0; i < oracle.o.size(); ++i) {
    if (std::isnan(oracle.o[i])) {
      errors.finite = errors.finite && std::isnan(got.o[i]);
      continue;
    }
    const double error = std::abs(got.o[i] - oracle.o[i]);
    if (!std::isfinite(error)) errors.finite = false;
    errors.max = std::max(errors.max, error);
    sum += error;
  }
  errors.count = oracle.o.size();
  errors.mean = oracle.o.empty() ? 0 : sum / static_cast<double>(oracle.o.size());
  for (size_t i = 0; i < oracle.lse.size() && i < got.lse.size(); ++i) {
    if (std::isnan(oracle.lse[i])) {
      errors.finite = errors.finite && std::isnan(got.lse[i]);
      continue;
    }
    if (oracle.lse[i] == -kInf || !std::isfinite(got.lse[i])) {
      errors.finite = errors.finite && got.lse[i] == oracle.lse[i];
      continue;
    }
    errors.lse_max = std::max(errors.lse_max, std::abs(got.lse[i] - oracle.lse[i]) /
                                                  std::max(1.0, std::abs(oracle.lse[i])));
  }
  return errors;
}

Errors pooled(const Errors& a, const Errors& b) {
  const auto count = static_cast<double>(a.count + b.count);
  Errors both;
  both.max = std::max(a.max, b.max);
  both.count = a.count + b.count;
  if (both.count > 0)
    both.mean =
        (a.mean * static_cast<double>(a.count) + b.mean * static_cast<double>(b.count)) / count;
  both.lse_max = std::max(a.lse_max, b.lse_max);
  both.finite = a.finite && b.finite;
  return both;
}

std::string verdict(const Errors& kernel, const Errors& twin, const Problem& problem) {
  // In fp32, the errors of twin and kernel come from the order of their sums. So this compares two
  // samples of the same noise.
  const double slack = problem.dtype_o == Dtype::kFp32 ? 2 : 1;
  if (!kernel.finite)
    return "NaN or infinity in O or LSE, or a row that should be empty or NaN and is not";
  if (kernel.max > slack * 2 * twin.max + 1e-5)
    return fmt::format("max error {:.3g} is above {} x the twin's {:.3g} + 1e-5", kernel.max,
                       slack * 2, twin.max);
  if (kernel.mean > slack * 1.2 * twin.mean + 1e-6)
    return fmt::format("mean error {:.3g} is above {} x the twin's {:.3g} + 1e-6", kernel.mean,
                       slack * 1.2, twin.mean);
  // With fewer bits than fp32, the scores have errors, and so LSE has errors too.
  const bool narrower =
      problem.dtype_q == Dtype::kFp32 && problem.fp8.accuracy != Accuracy::kAccurate;
  const double accepted = 1e-4 + kSumError * problem.head_dim_qk * problem.scale() +
                          (narrower ? slack * 2 * twin.lse_max : 0);
  if (kernel.lse_max > accepted)
    return fmt::format("LSE error {:.3g} is above {:.3g}", kernel.lse_max, accepted);
  return {};
}

bool judged_by_twin(const Problem& problem, Arithmetic arithmetic) {
  return !is_8_bit(problem) || arithmetic == Arithmetic::kFp32;
}

std::string verdict(const AttentionCase& test_case, const AttentionResult& got,
                    Arithmetic arithmetic) {
  if (!judged_by_twin(test_case.problem, arithmetic)) return verdict_8_bits(test_case, got);
  const AttentionResult oracle = test_case.oracle();
  return verdict(compare(got, oracle), compare(test_case.twin(arithmetic), oracle),
                 test_case.problem);
}

}  // namespace attune::testing
