// SPDX-License-Identifier: Apache-2.0
// Prints a mask program over boxes of rows and keys: it computes the results for a whole box at
// once. The text is C++ that follows templates/shared/score_ranges.h. It computes the map of blocks
// (templates/cuda/parts/block_map.cuh), and CPU kernels skip blocks with it.
//
//   MaskRowRanges mask_row_ranges(const ScoreArgs& args, IntRange batch, IntRange head,
//                                 IntRange kv_head, IntRange q_idx);
//   BoolRange mask_range(const ScoreArgs& args, const MaskRowRanges& rows, IntRange kv_idx);
//
// The first function computes the nodes that do not depend on keys, and kernels reuse its result
// for many blocks of keys. Its loads are load_range(). The other loads are load_range_of_keys(),
// since lanes of a warp may have different keys. Each node is a range that contains all its values.
// The root's range says which keys of the box are visible: {true, true} each key to each row,
// {false, false} none, {false, true} possibly some.
#pragma once

#include <string>

#include "generator/score/language/program.hpp"

namespace attune::score {

std::string range_text(const Program& mask, const Places& places = {});
// Returns the function for an operation on ranges. Returns "" if results of the operation are not
// tracked and may be any number.
std::string range_function(Operation operation);

}  // namespace attune::score
