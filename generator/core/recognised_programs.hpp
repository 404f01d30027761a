// SPDX-License-Identifier: Apache-2.0
// What of a caller's programs is a built-in feature in other words: canonical problems (generator/core/visibility.hpp) have it as that.
#pragma once

#include "generator/core/problem.hpp"

namespace attune {

// The same problem with as much of its programs as can be told in built-in features:
//   where(mask, score, -INFINITY)               as a score program: the mask becomes, or joins, the mask program
//   c * tanh(score / c)                         softcap
//   kv_idx <= q_idx, q_idx - kv_idx < w, ..     joined by &&: causal mask and windows, where these have the same diagonal
// What is not one of these stays a program; ALiBi does, since a program's slopes come in other axes than alibi_slopes. What a program
// captures keeps its name. Beside a map of blocks that tells what the masks show no mask joins them; one whose masks all become built-in
// ones has nothing to tell. Problems that make such maps keep the masks that they have.
Problem with_built_ins(const Problem& problem);

// Whether a mask was a program's and is a built-in one in `recognised`, with_built_ins(asked). Positions of a call (q_position0) move
// programs and not masks: such a plan takes only calls whose rows and keys begin at one position.
bool has_fixed_masks(const Problem& asked, const Problem& recognised);

}  // namespace attune
