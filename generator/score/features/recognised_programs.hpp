// SPDX-License-Identifier: Apache-2.0
// Recognises built-in features in a caller's programs. Canonical problems
// (generator/core/problem/visibility.hpp) use the features instead.
#pragma once

#include "generator/core/problem/problem.hpp"

namespace attune {

// Returns the problem with built-in features in place of programs, as far as possible:
//   where(mask, score, -INFINITY)               in a score program: the mask becomes, or
//                                               joins, the mask program
//   c * tanh(score / c)                         softcap
//   kv_idx <= q_idx, q_idx - kv_idx < w, ...    joined by &&: causal mask and windows, if
//                                               they have the same diagonal
// Anything else remains a program, also ALiBi, because a program's slopes have other axes than
// alibi_slopes. Captures keep their names.
//
// With block_map=skips, no mask joins the mask program, since the map does not include it. If
// built-in masks replace the whole mask program, the map is dropped. Problems of op block_map keep
// their masks.
Problem with_built_ins(const Problem& problem);

// True if a program's mask became a built-in one in `recognised`, the result of
// with_built_ins(asked). A call's positions (q_position0) shift programs but not built-in masks. So
// such a plan accepts only calls whose rows and keys begin at the same position.
bool has_fixed_masks(const Problem& asked, const Problem& recognised);

}  // namespace attune
