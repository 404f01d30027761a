// SPDX-License-Identifier: Apache-2.0
// Op block_map: what a problem's masks show of each granule of rows and keys (templates/shared/block_map.h), for calls of block_map=skips.
#pragma once

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& block_map_op();
// The problem whose o is a map for calls of this one: its masks, for one batch entry or head where they tell them not apart.
Problem block_map_problem(const Problem& of);

}  // namespace attune
