// SPDX-License-Identifier: Apache-2.0
// ScoreOperands: what a call of a problem with score features (generator/core/score_feature.hpp) gives beside q, k, v and o.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "generator/core/score_feature.hpp"
#include "templates/shared/capture_bytes.h"
#include "templates/shared/score_args.h"

namespace attune {

const char* element_name(CaptureType type);  // "fp32"
// One element in host memory. Values that an integer type cannot hold are rounded towards zero, then cut to its bits.
double load_capture(CaptureType type, const void* data, int64_t index);
void store_capture(CaptureType type, void* data, int64_t index, double value);

// A tensor in the order of captures_of(problem): its address on the device and its strides in elements, 0 to repeat.
struct CaptureView {
  const void* data = nullptr;
  int64_t strides[4] = {};
  // 0: that of the problem, from the call's first row or key on. Else programs index it by position: it is of longer sequences.
  int64_t extents[4] = {};
};

// Holds all in place: a call allocates nothing.
struct ScoreOperands {
  std::array<CaptureView, kMaxScoreCaptures> captures{};
  size_t num_captures = 0;
  std::array<ScoreScalar, kMaxScoreScalars> scalars{};  // in the order of scalars_of(spec)
  size_t num_scalars = 0;
  // Where the first row and key of this call stand, as programs see them: of a part of a longer sequence.
  int q_position0 = 0;
  int kv_position0 = 0;
  // The same of batch entries and heads of q; and, where not 0, the lengths that programs see.
  int batch0 = 0;
  int head0 = 0;
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = 0;

  void add(const CaptureView& capture) { captures.at(num_captures++) = capture; }
};

// Contiguous strides of a capture.
CaptureView contiguous_capture(const CaptureSpec& capture, const void* data);

// Throws kInvalidArgument with a sentence for captures that are missing, null or misaligned, strides that are negative, and
// positions out of range.
void check_score_operands(const Problem& problem, const ScoreCaptures& wanted,
                          const ScoreOperands* operands);

// What kernels are told. The operands are checked; null where nothing is captured and all positions are 0. Over caches programs see
// lengths of each request instead of these (templates/shared/request_scores.h).
ScoreArgs score_args(const Problem& problem, const ScoreCaptures& wanted,
                     const ScoreOperands* operands);

}  // namespace attune
