// SPDX-License-Identifier: Apache-2.0
// Recognises built-in features in a caller's programs. Canonical problems
// (generator/core/visibility.hpp) use the features instead.
#pragma once

#include "generator/core/problem.hpp"

namespace attune {

// Returns the same problem with built-in features in place of programs, as far as possible:
//   where(mask, score, -INFINITY)               in a score program: the mask becomes, or
//                                               joins, the mask program
//   c * tanh(score / c)                         softcap
//   kv_idx <= q_idx, q_idx - kv_idx < w, ...    joined by &&: causal mask and windows, if
//                                               they have the same diagonal
// Anything else stays a program. ALiBi does too, since a program's slopes come with other axes than
// alibi_slopes. Captures keep their names. With a map of blocks that repeats the masks (skips), no
// mask joins them. If all masks become built-in ones, such a map has nothing to tell. Problems that
// make such maps keep their masks.
Problem with_built_ins(const Problem& problem);

// True if a program's mask became a built-in one in `recognised`, which is with_built_ins(asked).
// Positions of a call (q_position0) move programs but not masks. So such a plan only takes calls
// whose rows and keys begin at one position.
bool has_fixed_masks(const Problem& asked, const Problem& recognised);

}  // namespace attune
