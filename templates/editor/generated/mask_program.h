// SPDX-License-Identifier: Apache-2.0
// Declares a mask program for editors, as elements and as panels of rows. The renderer writes one
// form of one program (generator/score/print/source_text.hpp).
#pragma once

#include "shared/score_args.h"

namespace attune {

struct MaskHead {};
struct MaskRow {};
struct MaskColumn {};
MaskHead mask_head(const ScoreArgs&, int batch, int head, int kv_head);
MaskRow mask_row(const ScoreArgs&, const MaskHead&, int batch, int head, int kv_head, int q_idx);
MaskColumn mask_column(const ScoreArgs&, const MaskHead&, int batch, int head, int kv_head,
                       int kv_idx);
bool mask_element(const ScoreArgs&, const MaskHead&, const MaskRow&, const MaskColumn&, int batch,
                  int head, int kv_head, int q_idx, int kv_idx);

// Panels of rows.
constexpr bool kMaskHasLines = false;

struct MaskLines {
  int keys;
};
struct MaskStaged {};
void mask_find_lines(const ScoreArgs&, const MaskHead&, const MaskRow&, const MaskColumn&,
                     int batch, int head, int kv_head, int q_idx, int kv_idx, int lane, MaskLines&);
void mask_fetch_lines(const MaskLines&, int lane, int keys);
void mask_stage_lines(const MaskLines&, int first, MaskStaged&);
bool mask_near_element(const ScoreArgs&, const MaskHead&, const MaskRow&, const MaskColumn&,
                       int batch, int head, int kv_head, int q_idx, int kv_idx, const MaskStaged&,
                       int key, int lane);

}  // namespace attune
