// SPDX-License-Identifier: Apache-2.0
// The keys that rows of a problem see (templates/shared/visibility.h has the rule), and the
// canonical form of all problems that see the same keys.
#pragma once

#include <cstdint>

#include "generator/core/problem.hpp"
#include "templates/shared/visibility.h"

namespace attune {

KeyInterval<int64_t> visible_keys(const Problem& problem, int64_t row);

// Returns the canonical form. Two valid problems that differ only in mask and window have equal
// canonical forms exactly if each of their rows sees the same keys. Look-up, plan cache, tuner and
// store use it:
// - a window side that hides nothing at these lengths is open;
// - no mask if nothing is hidden: one query row at the bottom right, no rows, no keys;
// - causal_bottom_right if both alignments are the same, or if a window ends on its diagonal;
// - causal_top_left instead of a window that ends on that diagonal;
// - no window_right under a causal mask.
//
// Programs that equal built-in features become these (recognised_programs.hpp). A scale that equals
// the default is left out. The lengths decide what a side hides, so a canonical form is valid for
// this problem's Shape, not for its bucket. Takes validated problems.
Problem canonical(const Problem& problem);

// Returns the floating-point operations of visible elements only: 2 * (head_dim_qk + head_dim_v)
// for each visible (row, column) and head.
double visible_flops(const Problem& problem);

}  // namespace attune
