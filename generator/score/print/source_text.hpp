// SPDX-License-Identifier: Apache-2.0
// Prints a program as C++ for kernels: the text of generated/score_program.h, which is equal on
// every target. It is in namespace attune, after a header with the functions that it calls
// (templates/cuda/parts/score_functions.cuh, templates/cpu/parts/score_functions.hpp).
//
//   struct ScoreHead { float v0; };  // depends only on batch, head and scalars: computed once
//   struct ScoreRow { int v1; };     // also on q_idx: once a row
//   struct ScoreColumn { int v2; };  // also on kv_idx: once a column
//   ScoreHead score_head(const ScoreArgs& args, int batch, int head, int kv_head);
//   ScoreRow score_row(const ScoreArgs& args, const ScoreHead& on_head, int batch, int head,
//                      int kv_head, int q_idx);
//   ScoreColumn score_column(const ScoreArgs& args, const ScoreHead& on_head, int batch, int head,
//                            int kv_head, int kv_idx);
//   float score_element(const ScoreArgs& args, const ScoreHead& on_head, const ScoreRow& on_row,
//                       const ScoreColumn& on_column, float score, int batch, int head,
//                       int kv_head, int q_idx, int kv_idx);
//   constexpr bool kScoreReadsColumns = true;  // ScoreColumn has members
//   constexpr bool kScoreHides = false;        // see may_hide
//
// Members are the largest subexpressions of their level. Constants, names and scalars are not
// stored, nor is the sum of a constant and a name or scalar. The address of a capture's line is a
// member too, if all indices but the last have a lower level. No function branches, so that loops
// over lanes vectorise. If the divisor of a float quotient has a lower level, the quotient becomes
// a product with the reciprocal, which is a member of the divisor's level.
#pragma once

#include <string>

#include "generator/score/language/program.hpp"

namespace attune::score {

// Prints a mask program as hide(identity(), program).
std::string source_text(const Program& program, const Places& places = {});

// Prints the slope of a score program (rewrites.hpp), for generated/slope_program.h. Like
// source_text, with Slope, slope_ and kSlope in place of Score, score_ and kScore.
std::string slope_source_text(const Program& slope, const Places& places = {});

// Prints a mask program alone, for generated/mask_program.h: like source_text, with Mask and mask_
// for Score and score_, and
//   bool mask_element(const ScoreArgs& args, const MaskHead& on_head, const MaskRow& on_row,
//                     const MaskColumn& on_column, int batch, int head, int kv_head, int q_idx,
//                     int kv_idx);
std::string mask_source_text(const Program& program, const Places& places = {});

// Does the same for a kernel whose lanes are rows (panel_printer.hpp). It calls functions of
// templates/cpu/parts/score_lines.hpp. A near form reads tensors along the keys if their elements
// are contiguous:
//
//   void score_find_lines(args, on_head, on_row, on_column, batch, head, kv_head, q_idx, kv_idx,
//                         int lane, ScoreLines& lines);
//   void score_fetch_lines(const ScoreLines& lines, int lane, int keys);
//   // Stages kScoreStagedKeys keys; lines.keys is the number of keys there are.
//   void score_stage_lines(const ScoreLines& lines, int first, ScoreStaged& staged);
//   float score_near_element(.. as score_element .., const ScoreStaged& staged, int key, int lane);
//   constexpr bool kScoreHasLines = true;
std::string panel_text(const Program& program, const Places& places = {});
std::string mask_panel_text(const Program& program, const Places& places = {});

// Does the same for a kernel that processes keys in steps (rewrites.hpp, step_printer.hpp). `score`
// and the result are in other units:
//
//   ScoreHead score_head(const ScoreArgs& args, float unit, int batch, int head, int kv_head);
//   // True: score_element(.., score, ..) * unit is the result. False: score_element is.
//   constexpr bool kScoreKeepsUnits = true;
//
// score * unit is the score of the language. In addition to score_element there is a near form. It
// costs less per element, and is valid only if score_step and score_is_near say so:
//
//   // span keys from kv_idx on
//   ScoreStep score_step(args, on_head, on_row, batch, head, kv_head, q_idx, int kv_idx, int span);
//   void score_share(const ScoreStep& above, int rows, ScoreStep* below);
//   // prefetches the lines that only one row reads
//   void score_prefetch(.. as score_step .., int part, int parts);
//   // for scores between these
//   bool score_is_near(args, on_head, on_row, q_idx, float bottom, float top);
//   // an upper bound for scores below the near range, in either form; infinity if unknown
//   float score_low(on_head);
//   // the line of 16-bit elements that the kernel brings to shared memory, if there is one
//   const void* score_staged_line(on_step);
//   // for columns offset and offset + 1; `staged` has their staged elements
//   void score_loads(on_step, int offset, unsigned staged, ScoreLoaded (&pair)[2]);
//   ScoreColumn score_near_column(args, on_head, on_step, loaded, batch, head, kv_head, kv_idx,
//                                 offset);
//   float score_near_element(args, on_head, on_row, on_column, on_step, loaded, score, batch, head,
//                            kv_head, q_idx, kv_idx, offset);
//   // If on_step.is_linear, the near form is these linear terms plus score_linear_element.
//   ScoreLinear score_linear(args, on_head, on_row, on_step, batch, head, kv_head, q_idx);
//   float score_linear_element(.. as score_near_element ..);
//   OddTanh score_only_tanh(on_head);  // the near form, if kScoreIsTanh
std::string step_text(const Program& program, const Places& places = {});
// Does the same for a mask program: the result is the score or -infinity. No line is staged.
std::string mask_step_text(const Program& program, const Places& places = {});
// Return the values of kScoreIsTanh, kScoreKeepsUnits and kScoreStagesLine in the printed text.
bool is_tanh(const Program& program);
bool keeps_units(const Program& program);
bool stages_line(const Program& program);
// True if the result, in units of q.k, is the score plus terms that are constant along each
// diagonal of a head (positions.hpp). Then score_element of a score of 0 returns the sum of these
// terms.
bool adds_along_diagonals(const Program& program);

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

std::string range_text(const Program& mask, const Places& places = {});
// Returns the function for an operation on ranges. Returns "" if results of the operation are not
// tracked and may be any number.
std::string range_function(Operation operation);

}  // namespace attune::score
