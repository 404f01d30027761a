// SPDX-License-Identifier: Apache-2.0
// Choosing what to check and comparing it; see verify.hpp.
#include "tuner/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

constexpr double kTiny = 1e-12;  // rows that are all zero have no RMS
constexpr double kLseAllowed = 2e-3;
constexpr double kRoundingMoves = 0.05;  // of one row's O: two deviations of P's rounding
constexpr int64_t kFewRows = 64;
constexpr int kNumSlices = 3;

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
      break;
  }
  return std::ldexp(1.0, -17);
}

bool narrow_weights(const Problem& problem, Weights weights) {
  return is_fp8(problem) && weights == Weights::kAsOperands;
}

double rms_factor_of(const Problem& problem, Weights weights) {
  if (!narrow_weights(problem, weights)) return 6;
  return problem.fp8.accuracy == Accuracy::kFast ? 4 : 3;
}

double mean_factor_of(const Problem& problem, Weights weights) {
  if (!narrow_weights(problem, weights)) return 0.6;
  return problem.fp8.accuracy == Accuracy::kFast ? 0.75 : 0.45;
}

double flops_per_row(const Problem& p, int num_kv_heads) {
  return 2.0 * (p.head_dim_qk + p.head_dim_v) * static_cast<double>(p.seqlen_kv) * num_kv_heads *
         (p.num_heads_q / p.num_heads_kv);
}

std::string place_text(const RowPlace& place) {
  return fmt::format("batch {}, row {}, head {}", place.batch, place.row, place.head);
}

bool is_windowed(const Problem& p) { return p.window_left >= 0 || p.window_right >= 0; }

CheckRegion whole(const Problem& p) {
  return {0, p.batch, 0, p.num_heads_kv, 0, p.seqlen_q, p.seqlen_kv};
}

int64_t begin_of_slice(const Problem& p, int64_t row) {
  return p.fp8.scale_block_q > 0 ? row / kSliceRows * kSliceRows : row;
}

// Moves a slice to where the mask lets a smaller problem give the same rows, and cuts the keys no
// row of it can see.
CheckRegion fit_to_mask(const Problem& p, CheckRegion region) {
  const int64_t rows = region.row_end - region.row_begin;
  if (p.mask == Mask::kNone) {
    if (is_windowed(p)) {
      region.row_begin = begin_of_slice(p, p.seqlen_q - rows);
      region.row_end = p.seqlen_q;
      return region;
    }
  } else if (p.mask == Mask::kCausalTopLeft) {  // seen as bottom-right over keys [0, row_end)
    region.row_begin =
        begin_of_slice(p, std::max<int64_t>(0, std::min(region.row_begin, p.seqlen_kv - rows)));
    region.seqlen_kv = std::min(region.row_begin + rows, p.seqlen_kv);
  } else {
    region.seqlen_kv =
        std::clamp<int64_t>(region.row_end + p.seqlen_kv - p.seqlen_q, 0, p.seqlen_kv);
  }
  region.row_end = region.row_begin + rows;
  return region;
}

}  // namespace

double check_flops_limit(bool on_cpu) { return on_cpu ? 3e8 : 2e10; }

CheckPlan check_plan(const Problem& p, double max_flops) {
  CheckPlan plan{spec_of(p), {}};
  plan.spec.dtype_o = Dtype::kFp32;
  if (plan.spec.fp8.scale_block_q > 0) plan.spec.fp8.scale_block_q = kSliceRows;
  if (flops_per_row(p, p.num_heads_kv) * static_cast<double>(p.batch * p.seqlen_q) <= max_flops) {
    plan.regions.push_back(whole(p));
    return plan;
  }
  int heads = p.num_heads_kv;
  const auto rows_for = [&] {
    return static_cast<int64_t>(max_flops / kNumSlices / flops_per_row(p, heads));
  };
  while (heads > 1 && rows_for() < kFewRows) heads /= 2;
  int64_t rows = std::clamp<int64_t>(rows_for(), 1, p.seqlen_q);
  if (p.mask == Mask::kCausalTopLeft) {
    plan.spec.mask = Mask::kCausalBottomRight;
    rows = std::min(rows, p.seqlen_kv);
  }
  for (int i = 0; i < kNumSlices; ++i) {
    const auto place = [&](int64_t extent, int64_t size) {
      return (extent - size) * i / (kNumSlices - 1);
    };
    const int64_t row = begin_of_slice(p, place(p.seqlen_q, rows));
    plan.regions.push_back(
        fit_to_mask(p, {place(p.batch, 1), 1, static_cast<int>(place(p.num_heads_kv, heads)), heads,
                        row, row + rows, p.seqlen_kv}));
  }
  return plan;
}

Problem region_problem(const Problem& problem, const CheckPlan& plan, const CheckRegion& region) {
  Problem part = problem;
  part.dtype_o = plan.spec.dtype_o;
  part.fp8 = plan.spec.fp8;
  part.mask = plan.spec.mask;
  part.batch = region.num_batches;
  part.num_heads_kv = region.num_kv_heads;
  part.num_heads_q = region.num_kv_heads * (problem.num_heads_q / problem.num_heads_kv);
  part.seqlen_q = region.row_end - region.row_begin;
  part.seqlen_kv = region.seqlen_kv;
  part.softmax_scale = problem.scale();
  return part;
}

std::optional<std::string> LossComparison::wrong(const Problem& problem, Weights weights) const {
  const double allowed = narrow_weights(problem, weights)
                             ? allowed_loss(problem) + kRoundingMoves / std::sqrt(rows_)
                             : unit_of(problem.dtype_o);
  if (std::fabs(loss()) <= allowed) return std::nullopt;
  return fmt::format("O of a V with a mean is {:.2g} too small, allowed are {:.2g}", loss(),
                     allowed);
}

Comparison::Comparison(const Problem& problem, Weights weights)
    : unit_(unit_of(narrow_weights(problem, weights) ? problem.dtype_q : problem.dtype_o)),
      rms_factor_(rms_factor_of(problem, weights)),
      mean_factor_(mean_factor_of(problem, weights)) {}

void Comparison::blame(double ratio, const std::string& sentence) {
  if (ratio <= max_) return;
  max_ = ratio;
  if (ratio > 1) worst_ = sentence;
}

void Comparison::add_row(const float* want, const float* got, int count, const RowPlace& place) {
  double square = 0;
  for (int i = 0; i < count; ++i) square += static_cast<double>(want[i]) * want[i];
  const double rms = std::sqrt(square / count);
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    const double allowed = unit_ * (std::fabs(want[i]) + rms_factor_ * rms) + kTiny;
    const double ratio =
        std::isfinite(got[i]) ? error / allowed : INFINITY;  // poison that was not written over
    if (ratio > max_)
      blame(ratio, fmt::format("{}, element {} is {}, expected {} within {:.3g}", place_text(place),
                               i, got[i], want[i], allowed));
    sum += error;
  }
  sum_error_ += sum / count;
  sum_rms_ += rms;
  ++rows_;
}

void Comparison::add_lse(float want, float got, const RowPlace& place) {
  const bool both_empty = std::isinf(want) && want < 0 && want == got;
  const double error = both_empty ? 0 : std::fabs(static_cast<double>(got) - want);
  const double ratio =
      std::isnan(error) ? INFINITY
                        : error / (kLseAllowed * (1 + (std::isfinite(want) ? std::fabs(want) : 0)));
  if (ratio > max_)
    blame(ratio, fmt::format("{}, LSE is {}, expected {}", place_text(place), got, want));
}

CheckError Comparison::result() const {
  CheckError error;
  error.max = max_;
  error.wrong = worst_;
  if (rows_ == 0) return error;
  error.mean = sum_error_ / (mean_factor_ * unit_ * sum_rms_ + kTiny * static_cast<double>(rows_));
  if (!error.wrong && !(error.mean <= 1))
    error.wrong = fmt::format("mean error is {:.2f} times what is allowed", error.mean);
  return error;
}

}  // namespace attune
