// SPDX-License-Identifier: Apache-2.0
// A mask program over boxes of rows and keys: what it gives for all of them at once, as C++ of kernels that stands behind
// templates/shared/score_ranges.h. The map of blocks is made with it (templates/cuda/attention/block_map.cuh), and CPU kernels skip blocks.
//
//   MaskRowRanges mask_row_ranges(const ScoreArgs& args, IntRange batch, IntRange head, IntRange kv_head, IntRange q_idx);
//   BoolRange mask_range(const ScoreArgs& args, const MaskRowRanges& rows, IntRange kv_idx);
//
// The first has what does not depend on keys, to be kept while blocks of keys pass: its loads are load_range(), the others
// load_range_of_keys(), for lanes of a warp may have keys of their own. Each node is a range that holds all its values
// (templates/shared/score_ranges.h): {true, true} of the root means that the mask shows every key of the box to every row,
// {false, false} that it shows none, {false, true} that it may be either.
#pragma once

#include <string>

#include "generator/core/score/program.hpp"

namespace attune::score {

std::string range_text(const Program& mask, const Places& places = {});
// The function that an operation is in such text; "" for one whose results are not followed, that are then any number.
std::string range_function(Operation operation);

}  // namespace attune::score
