// SPDX-License-Identifier: Apache-2.0
// Declares the ranges of a mask program for editors. The renderer writes those of one program
// (generator/score/print/source_text.hpp).
#pragma once

#include "shared/score_args.h"

namespace attune {

struct IntRange;
struct BoolRange;
struct MaskRowRanges {};
MaskRowRanges mask_row_ranges(const ScoreArgs&, IntRange batch, IntRange head, IntRange kv_head,
                              IntRange q_idx);
BoolRange mask_range(const ScoreArgs&, const MaskRowRanges&, IntRange kv_idx);

}  // namespace attune
