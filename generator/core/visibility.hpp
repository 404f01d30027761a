// SPDX-License-Identifier: Apache-2.0
// Which keys the rows of a problem see (templates/shared/visibility.h has the rule), and the one
// Problem that stands for all that see the same.
#pragma once

#include <cstdint>

#include "generator/core/problem.hpp"
#include "templates/shared/visibility.h"

namespace attune {

KeyInterval<int64_t> visible_keys(const Problem& problem, int64_t row);

// Two valid problems that differ in mask and window alone have equal canonical problems exactly
// when each of their rows sees the same keys. Look-up, plan cache, tuner and store work on these:
//   - a side of a window that hides nothing at these lengths is open;
//   - no mask where nothing is hidden: one query row at the bottom right, no rows, no keys;
//   - causal_bottom_right where both alignments are the same; also for a window that ends on its
//   diagonal;
//   - causal_top_left rather than a window that ends on that diagonal;
//   - no window_right under a causal mask.
// Programs that are built-in features in other words are these (recognised_programs.hpp).
// What a side hides depends on the lengths: so a canonical form holds for this problem's Shape, not
// for its bucket. A
// scale that equals the default is left out. Takes validated problems.
Problem canonical(const Problem& problem);

// Floating-point operations of the visible elements only: 2 * (head_dim_qk + head_dim_v) for each
// visible (row, column) and head.
double visible_flops(const Problem& problem);

}  // namespace attune
