// SPDX-License-Identifier: Apache-2.0
// Functions that printed score programs call, the same on every target. Ints wrap, and a quotient
// by zero is 0. Selections have no branches and compute all operands. tanh is a quotient of
// polynomials. Each target's header of score functions defines ATTUNE_SCORE_FUNCTION and includes
// it. generator/score/language/compute.cpp defines the same functions for host code.
#pragma once

#include "shared/capture_bytes.h"

namespace attune {

ATTUNE_SCORE_FUNCTION int score_add(int a, int b) {
  return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
}
ATTUNE_SCORE_FUNCTION int score_subtract(int a, int b) {
  return static_cast<int>(static_cast<unsigned>(a) - static_cast<unsigned>(b));
}
ATTUNE_SCORE_FUNCTION int score_multiply(int a, int b) {
  return static_cast<int>(static_cast<unsigned>(a) * static_cast<unsigned>(b));
}
ATTUNE_SCORE_FUNCTION int score_negate(int a) { return score_subtract(0, a); }
ATTUNE_SCORE_FUNCTION int score_shift_left(int a, int b) {
  return static_cast<int>(static_cast<unsigned>(a) << (b & 31));
}
ATTUNE_SCORE_FUNCTION int score_shift_right(int a, int b) { return a >> (b & 31); }

// In C++ the lowest int divided by -1 is undefined.
ATTUNE_SCORE_FUNCTION int score_div(int a, int b) {
  const int quotient = a / (b == 0 || b == -1 ? 1 : b);
  return b == 0 ? 0 : b == -1 ? score_negate(a) : quotient;
}
ATTUNE_SCORE_FUNCTION int score_mod(int a, int b) {
  const int remainder = a % (b == 0 || b == -1 ? 1 : b);
  return b == 0 ? 0 : remainder;
}
ATTUNE_SCORE_FUNCTION int score_floordiv(int a, int b) {
  const int rest = score_mod(a, b);
  const bool rounds_up = rest != 0 && (rest < 0) != (b < 0);
  return score_div(a, b) - (rounds_up ? 1 : 0);
}
ATTUNE_SCORE_FUNCTION int score_floormod(int a, int b) {
  const int rest = score_mod(a, b);
  const bool rounds_up = rest != 0 && (rest < 0) != (b < 0);
  return rounds_up ? rest + b : rest;
}

ATTUNE_SCORE_FUNCTION int score_abs(int a) { return a < 0 ? score_negate(a) : a; }
ATTUNE_SCORE_FUNCTION int score_min(int a, int b) { return b < a ? b : a; }
ATTUNE_SCORE_FUNCTION int score_max(int a, int b) { return a < b ? b : a; }
ATTUNE_SCORE_FUNCTION int score_clamp(int a, int low, int high) {
  return score_min(score_max(a, low), high);
}

ATTUNE_SCORE_FUNCTION bool score_and(bool a, bool b) { return a & b; }
ATTUNE_SCORE_FUNCTION bool score_or(bool a, bool b) { return a | b; }
template <class T>
ATTUNE_SCORE_FUNCTION T score_select(bool condition, T a, T b) {
  return condition ? a : b;
}

// Returns the offset of an element of a capture from its data; each index is clamped to its extent.
template <class... Index>
ATTUNE_SCORE_FUNCTION long long capture_offset(const ScoreCapture& capture, Index... indices) {
  static_assert(sizeof...(Index) <= kMaxCaptureRank, "a capture has at most 4 dimensions");
  long long offset = 0;
  int dimension = 0;
  ((offset +=
    score_max(score_min(indices, capture.extents[dimension] - 1), 0) * capture.strides[dimension],
    ++dimension),
   ...);
  return offset;
}

// Returns the address of the line of elements with these leading indices; load_in_line indexes the
// line by the last dimension.
template <CaptureType kType, class... Index>
ATTUNE_SCORE_FUNCTION const void* capture_line(const ScoreCapture& capture, Index... indices) {
  return static_cast<const char*>(capture.data) +
         capture_offset(capture, indices...) * capture_bytes(kType);
}

// tanh(x) = numerator / denominator for |x| <= kTanhLimit, and 1 to 2.3e-7 beyond it. Both are
// polynomials of x * x, fitted for the smallest relative error: 2.2e-7, or 5.6e-7 with the rounding
// of fp32 arithmetic.
struct TanhRatio {
  float numerator;
  float denominator;
};
constexpr float kTanhLimit = 8.0f;

ATTUNE_SCORE_FUNCTION TanhRatio tanh_ratio(float x) {
  const float z = x * x;
  float n = -6.142278685672409e-09f;
  n = n * z + 7.162485417211428e-06f;
  n = n * z + 0.002696407027542591f;
  n = n * z + 0.12712308764457703f;
  n = n * z + 0.9999997615814209f;
  float d = 0.00019674489158205688f;
  d = d * z + 0.022850288078188896f;
  d = d * z + 0.46045470237731934f;
  d = d * z + 1.0f;
  return {x * n, d};
}

}  // namespace attune
