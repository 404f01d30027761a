// SPDX-License-Identifier: Apache-2.0
// Verify: how much a kernel's result may differ from what its oracle (tuner/oracles/) expects. What
// is allowed, and why: TOLERANCES.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "generator/core/arch.hpp"
#include "generator/core/kernel_spec.hpp"

namespace attune {

// Relative to what is allowed: above 1 is wrong.
struct CheckError {
  double max = 0;
  double mean = 0;
  std::optional<std::string> wrong;  // a sentence
};

// Where a row stands, for messages.
struct RowPlace {
  int64_t batch = 0, row = 0, head = 0;
};

// How a kernel keeps P. On CPUs P is fp32 whatever the operands are, so 8-bit kernels are held to
// what 16-bit ones are: the rounding of O.
enum class Weights { kAsOperands, kFp32 };
inline Weights weights_on(Target target) {
  return target == Target::kCpu ? Weights::kFp32 : Weights::kAsOperands;
}

// The part of O that an 8-bit kernel with narrow P may lose where V has a mean.
inline double allowed_loss(const Problem& problem) {
  if (problem.fp8.accuracy == Accuracy::kAccurate) return 0.015;
  return 0.015 + 0x1p-11 / 32 * static_cast<double>(problem.seqlen_kv);
}

// Gathers how much of O is lost.
class LossComparison {
 public:
  template <class Real>
  void add(const Real* want, const Real* got, size_t count, double rows = 1) {
    rows_ += rows;
    for (size_t i = 0; i < count; ++i) {
      product_ += static_cast<double>(want[i]) * static_cast<double>(got[i]);
      square_ += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
  }
  double loss() const { return square_ > 0 ? 1 - product_ / square_ : 0; }
  // A sentence where the loss is more than allowed, to either side, or is no number.
  std::optional<std::string> wrong(const Problem& problem,
                                   Weights weights = Weights::kAsOperands) const;

 private:
  double product_ = 0, square_ = 0, rows_ = 0;
};

// Gathers the comparison of one result.
class Comparison {
 public:
  explicit Comparison(const Problem& problem, Weights weights = Weights::kAsOperands);
  // `terms`: RMS of what the row would be if no term of its sums had cancelled another; 0 where that is not known.
  void add_row(const float* want, const float* got, int count, const RowPlace& place,
               double terms = 0);
  void add_lse(float want, float got, const RowPlace& place);
  CheckError result() const;

 private:
  void blame(double ratio, const std::string& sentence);

  double unit_;
  double least_;  // what is allowed where all is 0
  double most_;   // beyond it the result's type has no numbers
  double rms_factor_, mean_factor_;
  double max_ = 0;
  double sum_error_ = 0;
  double sum_rms_ = 0;
  int64_t rows_ = 0;
  std::optional<std::string> worst_;
};

}  // namespace attune
