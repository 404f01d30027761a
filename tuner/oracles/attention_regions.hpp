// SPDX-License-Identifier: Apache-2.0
// The parts of an attention problem that its oracle computes: the whole problem if that is fast
// enough, else slices. A slice is some rows of some batches and heads; the reference computes it as
// a separate problem. Used by attention.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "generator/core/problem/kernel_spec.hpp"

namespace attune {

// A slice, or the whole problem: rows [row_begin, row_end) of some batches and heads.
struct CheckRegion {
  int64_t batch_begin = 0, num_batches = 0;
  int kv_head_begin = 0, num_kv_heads = 0;
  int64_t row_begin = 0, row_end = 0;
  int64_t seqlen_kv = 0;  // keys beyond it are masked for all these rows
};

struct CheckPlan {
  KernelSpec spec;  // of the reference
  std::vector<CheckRegion> regions;
};

// Returns the whole problem if the reference needs at most max_flops for it. Otherwise returns
// first, middle and last rows of first, middle and last batches and heads. For windows without a
// causal mask, only the last rows are checked, because the windows' alignment allows no other
// slice. If blocks of Q's rows have factors, slices begin at multiples of kSliceRows, and the
// reference has one factor for each kSliceRows rows.
inline constexpr int kSliceRows = 16;
CheckPlan check_plan(const Problem& problem, double max_flops);
double check_flops_limit(bool on_cpu);
Problem region_problem(const Problem& problem, const CheckPlan& plan, const CheckRegion& region);

}  // namespace attune
