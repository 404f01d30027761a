// SPDX-License-Identifier: Apache-2.0
// Chooses the regions to check; see attention_regions.hpp.
#include "tuner/oracles/attention_regions.hpp"

#include <algorithm>

namespace attune {
namespace {

constexpr int64_t kFewRows = 64;
constexpr int kNumSlices = 3;

double flops_per_row(const Problem& p, int num_kv_heads) {
  return 2.0 * (p.head_dim_qk + p.head_dim_v) * static_cast<double>(p.seqlen_kv) * num_kv_heads *
         static_cast<double>(p.num_heads_q) / p.num_heads_kv;
}

bool is_windowed(const Problem& p) { return p.window_left >= 0 || p.window_right >= 0; }

CheckRegion whole(const Problem& p) {
  return {0, p.batch, 0, p.num_heads_kv, 0, p.seqlen_q, p.seqlen_kv};
}

int64_t begin_of_slice(const Problem& p, int64_t row) {
  return p.fp8.scale_block_q > 0 ? row / kSliceRows * kSliceRows : row;
}

// Moves a slice to rows for which the mask allows a smaller problem with the same results. Leaves
// out the keys that no row of the slice can see.
CheckRegion fit_to_mask(const Problem& p, CheckRegion region) {
  const int64_t rows = region.row_end - region.row_begin;
  if (p.mask == Mask::kNone) {
    if (is_windowed(p)) {
      region.row_begin = begin_of_slice(p, p.seqlen_q - rows);
      region.row_end = p.seqlen_q;
      return region;
    }
  } else if (p.mask == Mask::kCausalTopLeft) {  // computed as bottom-right over keys [0, row_end)
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

}  // namespace attune
