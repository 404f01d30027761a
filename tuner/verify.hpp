// SPDX-License-Identifier: Apache-2.0
// Verify: how much a kernel's result may differ from what its oracle (tuner/oracles/) expects.
//
// The oracle of attention is the reference template on the same device, with fp32 output. A kernel that keeps
// fp32 sums and rounds P and O to its 16-bit type has, on N(0,1) inputs, a mean error of 0.45 units
// of the row's RMS (the low-precision twin of the tests measures it) and a maximum within a few
// units: unit = 2^-8 for bf16, 2^-11 for fp16 (unit roundoff), 2^-17 for fp32 (accumulation order
// and exp2). Allowed are, for each element and on average:
//   |got - want| <= unit * (|want| + 6 * rms(row))        mean |got - want| <= 0.6 * unit * mean
//   rms(row)
// which is below 2 x and 1.3 x of the twin, while one key left out of 16384 already breaks the
// first.
//
// 8-bit kernels round P to e4m3, with a unit of 2^-4. Errors of different keys are independent, so
// that the twin's are normal with a deviation of 0.42 units of the row's RMS, whatever the number
// of keys; a mean of 0.34. Where few keys have most of the weight, the accurate mode errs less (the
// largest P is a power of two) and the fast mode more, up to a unit of that key. Allowed are
//   |got - want| <= unit * (|want| + a * rms(row)), a = 3 (accurate) or 4 (fast)
//   mean |got - want| <= c * unit * mean rms(row), c = 0.45 (accurate) or 0.75 (fast)
// i.e. 7 and 9 deviations, and 1.3 x the largest mean of the twins: one key left out of 4096 breaks
// the first, 5 % too much in all elements (fast: 10 %) the second. LSE is held as for 16 bits
// (2e-3): on these inputs the tensor cores' accumulator of 14 bits errs by 1e-4 to 1e-3. CPU
// kernels keep P in fp32: they are held by the type of O, as those of wider operands.
//
// The tensor cores of some chips cut each 8-bit product off towards zero, at 2^-13 of the largest
// addend: where V has a mean, a long sum comes out too small, which V of N(0,1) hides. So 8-bit
// kernels are also held against a V of N(1,1), by the projection of O on the exact result alone
// (all of such O is much the same: it tells little else). The accurate mode, which empties the
// accumulator in time (prefill_sm90_fp8: every 1024 keys, which loses 0.9 %), may lose 1.5 %. The
// fast mode need not, and is allowed 2^-11 more for each 32 keys: 26 % at 16k keys, where an H200
// loses 18 %. Rounding P moves the projection by a random part that falls with the rows compared.
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

// How a kernel keeps P. On CPUs in fp32 whatever the operands are, so that 8-bit ones are held like
// 16-bit ones: by the rounding of O.
enum class Weights { kAsOperands, kFp32 };
inline Weights weights_on(Target target) {
  return target == Target::kCpu ? Weights::kFp32 : Weights::kAsOperands;
}

// Part of O that an 8-bit kernel of narrow P may lose where V has a mean.
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
  // A sentence where it passes the allowed, to either side, or is no number.
  std::optional<std::string> wrong(const Problem& problem,
                                   Weights weights = Weights::kAsOperands) const;

 private:
  double product_ = 0, square_ = 0, rows_ = 0;
};

// Gathers the comparison of one result.
class Comparison {
 public:
  explicit Comparison(const Problem& problem, Weights weights = Weights::kAsOperands);
  void add_row(const float* want, const float* got, int count, const RowPlace& place);
  void add_lse(float want, float got, const RowPlace& place);
  CheckError result() const;

 private:
  void blame(double ratio, const std::string& sentence);

  double unit_;
  double rms_factor_, mean_factor_;
  double max_ = 0;
  double sum_error_ = 0;
  double sum_rms_ = 0;
  int64_t rows_ = 0;
  std::optional<std::string> worst_;
};

}  // namespace attune
