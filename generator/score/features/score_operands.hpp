// SPDX-License-Identifier: Apache-2.0
// ScoreOperands: the operands of a call's score features
// (generator/score/features/score_feature.hpp), in addition to q, k, v and o.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "generator/score/features/score_feature.hpp"
#include "templates/shared/capture_bytes.h"
#include "templates/shared/score_args.h"

namespace attune {

const char* element_name(CaptureType type);  // "fp32"
// Access one element in host memory.
double load_capture(CaptureType type, const void* data, int64_t index);
void store_capture(CaptureType type, void* data, int64_t index, double value);

// A tensor's device address and its strides in elements (0 repeats), in the order of
// captures_of(problem).
struct CaptureView {
  const void* data = nullptr;
  int64_t strides[4] = {};
  // 0: the problem's extent, counted from the call's first row or key. Otherwise the tensor covers
  // longer sequences, and programs index it by position.
  int64_t extents[4] = {};
};

// Has fixed capacity, so that a call allocates nothing.
struct ScoreOperands {
  std::array<CaptureView, kMaxScoreCaptures> captures{};
  size_t num_captures = 0;
  std::array<ScoreScalar, kMaxScoreScalars> scalars{};  // in the order of scalars_of(spec)
  size_t num_scalars = 0;
  // Positions of this call's first row and key within longer sequences, as programs see them.
  int q_position0 = 0;
  int kv_position0 = 0;
  // The first batch entry and head of q in the same sense. Lengths that are not 0 replace the
  // call's in programs.
  int batch0 = 0;
  int head0 = 0;
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = 0;

  void add(const CaptureView& capture) { captures.at(num_captures++) = capture; }
};

// Returns a view of `data` with contiguous strides.
CaptureView contiguous_capture(const CaptureSpec& capture, const void* data);

// Throws kInvalidArgument for missing, null or misaligned captures, for negative strides, and for
// positions out of range.
void check_score_operands(const Problem& problem, const ScoreCaptures& wanted,
                          const ScoreOperands* operands);

// Returns the kernel argument for checked operands. `operands` may be null if the plan has no
// captures and all positions are 0. For ops with a cache, programs see each request's lengths, not
// the lengths in this argument (templates/shared/request_scores.h).
ScoreArgs score_args(const Problem& problem, const ScoreCaptures& wanted,
                     const ScoreOperands* operands);

}  // namespace attune
