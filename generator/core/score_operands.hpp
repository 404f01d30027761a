// SPDX-License-Identifier: Apache-2.0
// ScoreOperands: the operands of a call with score features (generator/core/score_feature.hpp),
// besides q, k, v and o.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "generator/core/score_feature.hpp"
#include "templates/shared/capture_bytes.h"
#include "templates/shared/score_args.h"

namespace attune {

const char* element_name(CaptureType type);  // "fp32"
// Reads one element in host memory.
double load_capture(CaptureType type, const void* data, int64_t index);
void store_capture(CaptureType type, void* data, int64_t index, double value);

// A tensor in the order of captures_of(problem): its device address and its strides in elements, 0
// to repeat.
struct CaptureView {
  const void* data = nullptr;
  int64_t strides[4] = {};
  // 0: the extent in the problem, counted from the call's first row or key. Otherwise programs
  // index the axis by position: it belongs to longer sequences.
  int64_t extents[4] = {};
};

// Holds everything in place, so that a call allocates nothing.
struct ScoreOperands {
  std::array<CaptureView, kMaxScoreCaptures> captures{};
  size_t num_captures = 0;
  std::array<ScoreScalar, kMaxScoreScalars> scalars{};  // in the order of scalars_of(spec)
  size_t num_scalars = 0;
  // Positions of this call's first row and key, as programs see them, in a longer sequence.
  int q_position0 = 0;
  int kv_position0 = 0;
  // Likewise for batch entries and heads of q; and, if not 0, the lengths that programs see.
  int batch0 = 0;
  int head0 = 0;
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = 0;

  void add(const CaptureView& capture) { captures.at(num_captures++) = capture; }
};

// Returns a capture with contiguous strides.
CaptureView contiguous_capture(const CaptureSpec& capture, const void* data);

// Throws kInvalidArgument for missing, null or misaligned captures, negative strides, and positions
// out of range.
void check_score_operands(const Problem& problem, const ScoreCaptures& wanted,
                          const ScoreOperands* operands);

// Returns the argument of kernels for checked operands; `operands` may be null if nothing is
// captured and all positions are 0. Over caches programs see each request's lengths instead of
// these (templates/shared/request_scores.h).
ScoreArgs score_args(const Problem& problem, const ScoreCaptures& wanted,
                     const ScoreOperands* operands);

}  // namespace attune
