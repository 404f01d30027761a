// SPDX-License-Identifier: Apache-2.0
// Prints a mask program over boxes of rows and keys: its result for all of them at once, as C++ of
// kernels after templates/shared/score_ranges.h. The map of blocks is made with it
// (templates/cuda/attention/block_map.cuh), and CPU kernels skip blocks with it.
//
//   MaskRowRanges mask_row_ranges(const ScoreArgs& args, IntRange batch, IntRange head,
//                                 IntRange kv_head, IntRange q_idx);
//   BoolRange mask_range(const ScoreArgs& args, const MaskRowRanges& rows, IntRange kv_idx);
//
// The first has the nodes that do not depend on keys, and is kept while blocks of keys pass. Its
// loads are load_range(); other loads are load_range_of_keys(), since lanes of a warp may have
// different keys. Each node is a range that holds all its values (templates/shared/score_ranges.h).
// For the root, {true, true} means that the mask shows every key of the box to every row, {false,
// false} that it shows none, and {false, true} that it may be either.
#pragma once

#include <string>

#include "generator/core/score/program.hpp"

namespace attune::score {

std::string range_text(const Program& mask, const Places& places = {});
// Returns the function of an operation in such text; "" if its results are not followed, and may be
// any number.
std::string range_function(Operation operation);

}  // namespace attune::score
