// SPDX-License-Identifier: Apache-2.0
// Declares a score program for editors: the functions of all forms. The renderer writes one form of
// one program: elements, steps of keys (sm_90) or panels of rows (CPUs). See
// generator/score/print/source_text.hpp.
#pragma once

#include "shared/score_args.h"

namespace attune {

constexpr bool kScoreHides = false, kScoreReadsColumns = false;

struct ScoreHead {};
struct ScoreRow {};
struct ScoreColumn {};
ScoreHead score_head(const ScoreArgs&, int batch, int head, int kv_head);
ScoreRow score_row(const ScoreArgs&, const ScoreHead&, int batch, int head, int kv_head, int q_idx);
ScoreColumn score_column(const ScoreArgs&, const ScoreHead&, int batch, int head, int kv_head,
                         int kv_idx);
float score_element(const ScoreArgs&, const ScoreHead&, const ScoreRow&, const ScoreColumn&,
                    float score, int batch, int head, int kv_head, int q_idx, int kv_idx);

// Steps of keys.
constexpr bool kScoreKeepsUnits = true, kScoreHasConditions = false, kScoreHasLow = false,
               kScoreHasReach = false, kScoreIsLinear = false, kScoreIsTanh = false,
               kScoreReadsElements = false, kScoreReadsLines = false, kScoreStagesLine = false;
constexpr int kScoreSharedLines = 0;

struct ScoreLinear;
struct OddTanh;
struct ScoreStep {
  bool is_near, is_linear;
  int staged_index;
};
struct ScoreLoaded {};
ScoreHead score_head(const ScoreArgs&, float unit, int batch, int head, int kv_head);
ScoreStep score_step(const ScoreArgs&, const ScoreHead&, const ScoreRow&, int batch, int head,
                     int kv_head, int q_idx, int kv_idx, int span);
void score_share(const ScoreStep& above, int rows, ScoreStep* below);
void score_loads(const ScoreStep&, int offset, unsigned staged, ScoreLoaded (&pair)[2]);
const void* score_staged_line(const ScoreStep&);
void score_prefetch(const ScoreArgs&, const ScoreHead&, const ScoreRow&, int batch, int head,
                    int kv_head, int q_idx, int kv_idx, int span, int part, int parts);
bool score_is_near(const ScoreArgs&, const ScoreHead&, const ScoreRow&, int q_idx, float bottom,
                   float top);
float score_low(const ScoreHead&);
ScoreColumn score_near_column(const ScoreArgs&, const ScoreHead&, const ScoreStep&,
                              const ScoreLoaded&, int batch, int head, int kv_head, int kv_idx,
                              int offset);
float score_near_element(const ScoreArgs&, const ScoreHead&, const ScoreRow&, const ScoreColumn&,
                         const ScoreStep&, const ScoreLoaded&, float score, int batch, int head,
                         int kv_head, int q_idx, int kv_idx, int offset);
ScoreLinear score_linear(const ScoreArgs&, const ScoreHead&, const ScoreRow&, const ScoreStep&,
                         int batch, int head, int kv_head, int q_idx);
float score_linear_element(const ScoreArgs&, const ScoreHead&, const ScoreRow&, const ScoreColumn&,
                           const ScoreStep&, const ScoreLoaded&, float score, int batch, int head,
                           int kv_head, int q_idx, int kv_idx, int offset);
OddTanh score_only_tanh(const ScoreHead&);

// Panels of rows.
constexpr bool kScoreHasLines = false;

struct ScoreLines {
  int keys;
};
struct ScoreStaged {};
void score_find_lines(const ScoreArgs&, const ScoreHead&, const ScoreRow&, const ScoreColumn&,
                      int batch, int head, int kv_head, int q_idx, int kv_idx, int lane,
                      ScoreLines&);
void score_fetch_lines(const ScoreLines&, int lane, int keys);
void score_stage_lines(const ScoreLines&, int first, ScoreStaged&);
float score_near_element(const ScoreArgs&, const ScoreHead&, const ScoreRow&, const ScoreColumn&,
                         float score, int batch, int head, int kv_head, int q_idx, int kv_idx,
                         const ScoreStaged&, int key, int lane);

}  // namespace attune
