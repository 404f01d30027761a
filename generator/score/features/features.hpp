// SPDX-License-Identifier: Apache-2.0
// The score features: each is in the file of its name in this folder. Used by score_feature.cpp.
#pragma once

#include "generator/core/problem/problem.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& alibi_feature();
const ScoreFeature& bias_feature();
const ScoreFeature& block_map_feature();
const ScoreFeature& chunk_feature();
const ScoreFeature& documents_feature();
const ScoreFeature& key_lengths_feature();
const ScoreFeature& mask_tensor_feature();
const ScoreFeature& prefix_feature();
const ScoreFeature& relative_bias_feature();
const ScoreFeature& softcap_feature();
const ScoreFeature& score_mod_feature();
const ScoreFeature& mask_mod_feature();

// The built-in features in the order in which they are applied.
inline std::vector<const ScoreFeature*> built_in_features() {
  return {&softcap_feature(),       &score_mod_feature(),   &bias_feature(),
          &relative_bias_feature(), &alibi_feature(),       &mask_mod_feature(),
          &mask_tensor_feature(),   &key_lengths_feature(), &documents_feature(),
          &prefix_feature(),        &chunk_feature(),       &block_map_feature()};
}

// A map of blocks that the call gives (templates/shared/block_map.h). With block_map=hides the map
// is a mask: keys in blocks that are 0 are hidden. With block_map=skips it changes no result:
// kernels read it instead of computing ranges of the problem's masks.

// Returns the map's capture: its program's if the map hides, else an additional one after all
// others.
CaptureSpec block_map_capture_of(const Problem& problem);

// Recognises built-in features in a caller's programs. Canonical problems
// (generator/core/problem/visibility.hpp) use the features instead.

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
