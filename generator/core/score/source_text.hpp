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

// The slope of a score program (slope.hpp), for generated/slope_program.h: the same with Slope, slope_ and kSlope for Score, score_ and kScore.
std::string slope_source_text(const Program& slope, const Places& places = {});

// A mask program by itself, for generated/mask_program.h: the same with Mask and mask_ for Score and score_, and
//   bool mask_element(const ScoreArgs& args, const MaskHead& on_head, const MaskRow& on_row, const MaskColumn& on_column,
//                     int batch, int head, int kv_head, int q_idx, int kv_idx);
std::string mask_source_text(const Program& program, const Places& places = {});

// The same for a kernel whose lanes are rows (panel_printer.hpp; templates/cpu/score_lines.hpp has what it calls), with a near form that
// reads tensors along the keys where their elements stand side by side:
//
//   void score_find_lines(args, on_head, on_row, on_column, batch, head, kv_head, q_idx, kv_idx, int lane, ScoreLines& lines);
//   void score_fetch_lines(const ScoreLines& lines, int lane, int keys);
//   void score_stage_lines(const ScoreLines& lines, int first, ScoreStaged& staged);  // kScoreStagedKeys; lines.keys says how many there are
//   float score_near_element(.. as score_element .., const ScoreStaged& staged, int key, int lane);
//   constexpr bool kScoreHasLines = true;
std::string panel_text(const Program& program, const Places& places = {});
std::string mask_panel_text(const Program& program, const Places& places = {});

// The same for a kernel that works through keys in steps (stepped.hpp, step_printer.hpp). `score` and the result are in other units:
//
//   ScoreHead score_head(const ScoreArgs& args, float unit, int batch, int head, int kv_head);
//   constexpr bool kScoreKeepsUnits = true;  // score_element(.., score, ..) * unit is the result; false: it is as it stands
//
// score * unit is what the language calls a score. Beside score_element there is a near form, which takes less of each element and is
// right where score_step and score_is_near say so:
//
//   ScoreStep score_step(args, on_head, on_row, batch, head, kv_head, q_idx, int kv_idx, int span);  // span keys from kv_idx on
//   void score_share(const ScoreStep& above, int rows, ScoreStep* below);
//   void score_prefetch(.. as score_step .., int part, int parts);  // of lines that only one row reads
//   bool score_is_near(args, on_head, on_row, q_idx, float bottom, float top);  // for scores between these
//   float score_low(on_head);  // what no score below the near range comes to in either form; infinity where that is not known
//   const void* score_staged_line(on_step);  // of the line of 16-bit elements that the kernel brings to shared memory, if there is one
//   void score_loads(on_step, int offset, unsigned staged, ScoreLoaded (&pair)[2]);  // of columns offset and offset + 1; `staged`: theirs
//   ScoreColumn score_near_column(args, on_head, on_step, loaded, batch, head, kv_head, kv_idx, offset);
//   float score_near_element(args, on_head, on_row, on_column, on_step, loaded, score, batch, head, kv_head, q_idx, kv_idx, offset);
//   ScoreLinear score_linear(args, on_head, on_row, on_step, batch, head, kv_head, q_idx);  // where on_step.is_linear, these terms of the
//   float score_linear_element(.. as score_near_element ..);                                // result, and the others, are the near form
//   OddTanh score_only_tanh(on_head);  // where kScoreIsTanh, the near form
std::string step_text(const Program& program, const Places& places = {});
// Of a mask program: a score is itself or -infinity. No line is staged.
std::string mask_step_text(const Program& program, const Places& places = {});
// kScoreIsTanh, kScoreKeepsUnits and kScoreStagesLine of it.
bool is_tanh(const Program& program);
bool keeps_units(const Program& program);
bool stages_line(const Program& program);
// Whether the result, in units of q.k, is the score and a sum of terms of which each is one value of a head and of kv_idx - q_idx
// (diagonal.hpp): score_element of a score of 0 is what they come to.
bool adds_along_diagonals(const Program& program);

}  // namespace attune::score
