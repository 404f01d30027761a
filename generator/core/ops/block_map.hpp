// SPDX-License-Identifier: Apache-2.0
// Op block_map: writes for each block of rows and keys whether the masks show all, some or none of
// it (templates/shared/block_map.h). Calls with block_map=skips use the result.
#pragma once

#include "generator/core/problem/op.hpp"

namespace attune {

// Returns the problem whose o is a map for calls of `of`. It has the same masks. It has one batch
// entry or head if the masks do not depend on them.
Problem block_map_problem(const Problem& of);

}  // namespace attune
