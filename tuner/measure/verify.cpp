// SPDX-License-Identifier: Apache-2.0
// Compares results with expected ones; see verify.hpp.
#include "tuner/measure/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/core/ops/ops.hpp"

namespace attune {
namespace {

constexpr double kTiny = 1e-12;          // rows that are all zero have no RMS
constexpr double kTinyOfFp16 = 0x1p-24;  // fp16 has no numbers below it
constexpr double kMostOfFp16 = 65504;
constexpr double kLseAllowed = 2e-3, kLseOfRoundedKeys = 6e-3;
// a sum of 1000 terms with random signs keeps about this part
constexpr double kKeptOfTerms = 1.0 / 32;
constexpr double kRoundingMoves = 0.05;  // of one row's O: two standard deviations of P's rounding

double unit_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return std::ldexp(1.0, -8);
    case Dtype::kFp16:
      return std::ldexp(1.0, -11);
    case Dtype::kE4m3:
      return std::ldexp(1.0, -4);
    case Dtype::kE5m2:
      return std::ldexp(1.0, -3);
    case Dtype::kFp32:
    case Dtype::kInt8:
    case Dtype::kInt4:
    case Dtype::kE2m1:
      break;
  }
  return std::ldexp(1.0, -17);
}

// True if products are tf32: for fp32 operands in the mode fast, except on a CPU.
bool takes_tf32(const Problem& problem, Weights weights) {
  return problem.dtype_q == Dtype::kFp32 && problem.fp8.accuracy == Accuracy::kFast &&
         weights == Weights::kAsOperands;
}
constexpr double kUnitOfTf32 = 0x1p-10;

bool narrow_weights(const Problem& problem, Weights weights) {
  return is_8_bit(problem.dtype_q) && weights == Weights::kAsOperands;
}

// True if keys, and so values, are rounded to the type of q in addition: after the product with
// factors of their own.
bool rounds_keys(const Problem& problem, Weights weights) {
  return problem.cache.kv_factors == KvFactors::kLatent && weights == Weights::kAsOperands;
}

double rms_factor_of(const Problem& problem, Weights weights) {
  if (!narrow_weights(problem, weights)) return 6;
  return problem.fp8.accuracy == Accuracy::kFast ? 4 : 3;
}

double mean_factor_of(const Problem& problem, Weights weights) {
  if (!narrow_weights(problem, weights)) return rounds_keys(problem, weights) ? 0.8 : 0.6;
  return problem.fp8.accuracy == Accuracy::kFast ? 0.75 : 0.45;
}

// Returns the unit of rounding of a result. Over caches o may be fp32 beside q of 16 bits, to which
// kernels round weights, also on processors with bf16 products.
double unit_of_result(const Problem& problem, Weights weights) {
  if (takes_tf32(problem, weights)) return kUnitOfTf32;
  if (narrow_weights(problem, weights)) return unit_of(problem.dtype_q);
  const bool is_wide =
      sums_by_weights(problem) && !is_8_bit(problem.dtype_q) && problem.dtype_o == Dtype::kFp32;
  return unit_of(is_wide ? problem.dtype_q : problem.dtype_o);
}

std::string place_text(const RowPlace& place) {
  return fmt::format("batch {}, row {}, head {}", place.batch, place.row, place.head);
}

}  // namespace

std::optional<std::string> LossComparison::wrong(const Problem& problem, Weights weights) const {
  const double allowed = narrow_weights(problem, weights)
                             ? allowed_loss(problem) + kRoundingMoves / std::sqrt(rows_)
                             : unit_of(problem.dtype_o);
  if (std::fabs(loss()) <= allowed) return std::nullopt;
  return fmt::format(
      "with a V of mean 1, O is too small by the share {:.2g}; must be within {:.2g}", loss(),
      allowed);
}

Comparison::Comparison(const Problem& problem, Weights weights)
    : unit_(unit_of_result(problem, weights)),
      least_(problem.dtype_o == Dtype::kFp16 ? kTinyOfFp16 : kTiny),
      most_(problem.dtype_o == Dtype::kFp16 ? kMostOfFp16 : INFINITY),
      lse_allowed_(rounds_keys(problem, weights) ? kLseOfRoundedKeys : kLseAllowed),
      rms_factor_(rms_factor_of(problem, weights)),
      mean_factor_(mean_factor_of(problem, weights)) {}

void Comparison::blame(double ratio, const std::string& sentence) {
  if (ratio <= max_) return;
  max_ = ratio;
  if (ratio > 1) worst_ = sentence;
}

void Comparison::add_row(const float* want, const float* got, int count, const RowPlace& place,
                         double terms) {
  double square = 0;
  for (int i = 0; i < count; ++i) square += static_cast<double>(want[i]) * want[i];
  const double rms = std::max(std::sqrt(square / count), kKeptOfTerms * terms);
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    const double allowed = unit_ * (std::fabs(want[i]) + rms_factor_ * rms) + least_;
    const bool is_beyond =
        std::isinf(got[i]) && (got[i] < 0) == (want[i] < 0) && std::fabs(want[i]) + allowed > most_;
    const double ratio = is_beyond               ? 0
                         : std::isfinite(got[i]) ? error / allowed
                                                 : INFINITY;  // poison that was not overwritten
    if (ratio > max_)
      blame(ratio, fmt::format("{}, element {} is {}, expected {} within {:.3g}", place_text(place),
                               i, got[i], want[i], allowed));
    if (!is_beyond) sum += error;
  }
  sum_error_ += sum / count;
  sum_rms_ += rms;
  ++rows_;
}

void Comparison::add_row_number(const char* name, float want, float got, const RowPlace& place) {
  const bool both_empty = std::isinf(want) && want < 0 && want == got;
  const double error = both_empty ? 0 : std::fabs(static_cast<double>(got) - want);
  const double ratio =
      std::isnan(error)
          ? INFINITY
          : error / (lse_allowed_ * (1 + (std::isfinite(want) ? std::fabs(want) : 0)));
  if (ratio > max_)
    blame(ratio, fmt::format("{}, {} is {}, expected {}", place_text(place), name, got, want));
}

CheckError Comparison::result() const {
  CheckError error;
  error.max = max_;
  error.wrong = worst_;
  if (rows_ == 0) return error;
  error.mean = sum_error_ / (mean_factor_ * unit_ * sum_rms_ + least_ * static_cast<double>(rows_));
  if (!error.wrong && !(error.mean <= 1))
    error.wrong = fmt::format("mean error is {:.2f} times the allowed one", error.mean);
  return error;
}

}  // namespace attune
