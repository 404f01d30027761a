// SPDX-License-Identifier: Apache-2.0
// Programs that add to a score what its head and kv_idx - q_idx say, as a relative bias or ALiBi does: a tile has few such values.
#pragma once

#include "generator/core/score/program.hpp"

namespace attune::score {

// Of a score program: the score once, and other terms that do not depend on it, nor on q_idx and kv_idx but by their difference.
bool is_score_and_diagonals(const Program& program);

}  // namespace attune::score
