// SPDX-License-Identifier: Apache-2.0
// A program as C++ for kernels: the text of generated/score_program.h, the same on every target. It stands inside namespace attune
// behind a header that defines what it calls (templates/cuda/attention/score_functions.cuh, templates/cpu/score_functions.hpp).
//
//   struct ScoreHead { float v0; };    // what depends on batch and head alone, and on scalars: computed once
//   struct ScoreRow { int v1; };       // also on q_idx: once a row
//   struct ScoreColumn { int v2; };    // also on kv_idx: once a column
//   ScoreHead score_head(const ScoreArgs& args, int batch, int head, int kv_head);
//   ScoreRow score_row(const ScoreArgs& args, const ScoreHead& on_head, int batch, int head, int kv_head, int q_idx);
//   ScoreColumn score_column(const ScoreArgs& args, const ScoreHead& on_head, int batch, int head, int kv_head, int kv_idx);
//   float score_element(const ScoreArgs& args, const ScoreHead& on_head, const ScoreRow& on_row, const ScoreColumn& on_column,
//                       float score, int batch, int head, int kv_head, int q_idx, int kv_idx);
//   constexpr bool kScoreReadsColumns = true;  // ScoreColumn has members
//   constexpr bool kScoreHides = false;        // see may_hide
//
// A member is a largest subexpression of its level that is worth keeping: no constant, name or scalar, and no sum of a name or scalar
// and a constant. So is the address of a capture's line, where all indices but the last are of a lower level. There is no branch in any function, so that loops over lanes vectorise. A float quotient whose divisor is of a lower
// level is a product with the reciprocal, which is a member of that level.
#pragma once

#include <string>

#include "generator/core/score/program.hpp"

namespace attune::score {

// A mask program is printed as hide(identity(), program).
std::string source_text(const Program& program, const Places& places = {});

// A mask program by itself, for generated/mask_program.h: the same with Mask and mask_ for Score and score_, and
//   bool mask_element(const ScoreArgs& args, const MaskHead& on_head, const MaskRow& on_row, const MaskColumn& on_column,
//                     int batch, int head, int kv_head, int q_idx, int kv_idx);
std::string mask_source_text(const Program& program, const Places& places = {});

}  // namespace attune::score
