// SPDX-License-Identifier: Apache-2.0
// Computes the keys that rows of a problem see (rule: templates/shared/visibility.h), and one
// canonical form for all problems whose rows see the same keys.
#pragma once

#include <cstdint>

#include "generator/core/problem/problem.hpp"
#include "templates/shared/visibility.h"

namespace attune {

KeyInterval<int64_t> visible_keys(const Problem& problem, int64_t row);

// Returns the canonical form. Two valid problems that differ only in mask and window have equal
// canonical forms if and only if each row sees the same keys in both. Used by look-up, plan cache,
// tuner and store:
// - a window side that hides nothing at these lengths is open;
// - no mask if nothing is hidden: one query row at the bottom right, no rows, no keys;
// - causal_bottom_right if both alignments are equal, or if a window ends on that diagonal;
// - causal_top_left if a window ends on the top-left diagonal;
// - no window_right with a causal mask.
//
// Programs that equal built-in features become these features (features.hpp). A scale
// equal to the default is left out. Since the lengths decide which window sides hide keys, a
// canonical form is valid for this problem's Shape, not for its bucket. Takes validated problems.
Problem canonical(const Problem& problem);

// Returns the floating-point operations of visible elements only: 2 * (head_dim_qk + head_dim_v)
// for each visible (row, column) and head.
double visible_flops(const Problem& problem);

}  // namespace attune
