// SPDX-License-Identifier: Apache-2.0
// The stages of an sm_90 consumer besides its products and the softmax: masks, dropout, score
// functions, and scores that are computed again.
#pragma once

#include "cuda/sm90/hide_scores.cuh"       // where kMaskProgram, else none/
#include "cuda/sm90/max_logits.cuh"        // where kMaxLogits, else none/
#include "cuda/sm90/prefill_dropout.cuh"   // where kDropout, else none/
#include "cuda/sm90/recompute_scores.cuh"  // where kRowMax == 1, else none/
#include "cuda/sm90/score_stage.cuh"       // where kScored, else none/
