// SPDX-License-Identifier: Apache-2.0
// Declares the derivative of a score program by the score for editors. The renderer writes the one
// of one program (generator/score/print/source_text.hpp).
#pragma once

#include "shared/score_args.h"

namespace attune {

struct SlopeHead {};
struct SlopeRow {};
struct SlopeColumn {};
SlopeHead slope_head(const ScoreArgs&, int batch, int head, int kv_head);
SlopeRow slope_row(const ScoreArgs&, const SlopeHead&, int batch, int head, int kv_head, int q_idx);
SlopeColumn slope_column(const ScoreArgs&, const SlopeHead&, int batch, int head, int kv_head,
                         int kv_idx);
float slope_element(const ScoreArgs&, const SlopeHead&, const SlopeRow&, const SlopeColumn&,
                    float score, int batch, int head, int kv_head, int q_idx, int kv_idx);

}  // namespace attune
