// SPDX-License-Identifier: Apache-2.0
// Verify: how much a kernel's result may differ from the oracle's (tuner/oracles/). For the limits
// and their reasons see TOLERANCES.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "generator/core/problem/arch.hpp"
#include "generator/core/problem/kernel_spec.hpp"
#include "tuner/measure/inputs.hpp"

namespace attune {

// Errors relative to the allowed errors: a result with an error above 1 is wrong.
struct CheckError {
  double max = 0;
  double mean = 0;
  std::optional<std::string> wrong;  // a sentence
};

// The place of a row, for messages.
struct RowPlace {
  int64_t batch = 0, row = 0, head = 0;
};

// The type in which a kernel keeps P. On CPUs P is fp32 for all operands. So 8-bit kernels there
// must keep the limits of 16-bit kernels, which allow for the rounding of O.
enum class Weights { kAsOperands, kFp32 };
inline Weights weights_on(Target target) {
  return target == Target::kCpu ? Weights::kFp32 : Weights::kAsOperands;
}

// Returns the share of O that an 8-bit kernel with narrow P may lose if the mean of V is not 0.
inline double allowed_loss(const Problem& problem) {
  if (problem.fp8.accuracy == Accuracy::kAccurate) return 0.015;
  return 0.015 + 0x1p-11 / 32 * static_cast<double>(problem.seqlen_kv);
}

// Measures which share of O is lost.
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
  // Returns a sentence if the loss is NaN, or its magnitude is more than allowed.
  std::optional<std::string> wrong(const Problem& problem,
                                   Weights weights = Weights::kAsOperands) const;

 private:
  double product_ = 0, square_ = 0, rows_ = 0;
};

// Compares one result, row by row.
class Comparison {
 public:
  explicit Comparison(const Problem& problem, Weights weights = Weights::kAsOperands);
  // `terms`: RMS of the row if no terms of its sums cancelled; 0 if not known.
  void add_row(const float* want, const float* got, int count, const RowPlace& place,
               double terms = 0);
  void add_lse(float want, float got, const RowPlace& place) {
    add_row_number("LSE", want, got, place);
  }
  // Adds a number in the unit of scores, or -infinity; `name` is for the message.
  void add_row_number(const char* name, float want, float got, const RowPlace& place);
  CheckError result() const;

 private:
  void blame(double ratio, const std::string& sentence);

  double unit_;
  double least_;  // allowed error if all values are 0
  double most_;   // the result's type has no numbers beyond it
  double lse_allowed_;
  double rms_factor_, mean_factor_;
  double max_ = 0;
  double sum_error_ = 0;
  double sum_rms_ = 0;
  int64_t rows_ = 0;
  std::optional<std::string> worst_;
};

// Compares two runs of one kernel on the same inputs, for problems that need the same bits in every
// run (Problem::deterministic). DeviceBackend uses it in addition to the oracle, which allows for
// rounding and checks only a part of large results.

// Returns a sentence that names the first element with different bits, or nullopt. `launch` fills
// the workspace with the byte `stale`, initialises it, runs the kernel, and waits. Outputs are
// filled with that byte too, except outputs that the kernel adds to: these begin at 0. The second
// run uses another byte. Only the first 16 MB of a large tensor are compared, because a full
// comparison for each candidate would take longer than its timing.
std::optional<std::string> difference_of_two_runs(
    const Device& device, const Problem& problem, Inputs& inputs,
    const std::function<void(const Operands& operands, int stale)>& launch);

}  // namespace attune
