// SPDX-License-Identifier: Apache-2.0
// Finds programs that only add to a score a function of the head and of kv_idx - q_idx, as relative
// bias and ALiBi do. A tile has few such values.
#pragma once

#include "generator/score/language/program.hpp"

namespace attune::score {

// True if a score program is the score, once, plus terms that do not depend on it. The terms may
// depend on q_idx and kv_idx only by their difference.
bool is_score_and_diagonals(const Program& program);

}  // namespace attune::score
