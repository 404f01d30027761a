// SPDX-License-Identifier: Apache-2.0
// Functions that the near form of printed score programs calls (step_text in
// generator/score/print/source_text.hpp), the same on every target: addresses in lines of captures,
// and tanh of small arguments without a quotient. Include this after a target's header of score
// functions.
#pragma once

namespace attune {

template <CaptureType kType>
ATTUNE_SCORE_FUNCTION const void* line_element(const void* line, long long index) {
  return static_cast<const char*>(line) + index * capture_bytes(kType);
}

// Returns the address of element `index` of a line, from which `span` elements are read. Clears
// *is_near unless all of them exist, are adjacent, and, if they are read as pairs, are aligned.
template <CaptureType kType, bool kIsPair>
ATTUNE_SCORE_FUNCTION const void* step_in_line(const void* line, const ScoreCapture& capture,
                                               int dimension, int index, int span, bool* is_near) {
  const void* at = line_element<kType>(line, index);
  *is_near &= index >= 0 && index <= capture.extents[dimension] - span;
  *is_near &= capture.strides[dimension] == 1;
  if constexpr (kIsPair)
    *is_near &= reinterpret_cast<unsigned long long>(at) % (2 * capture_bytes(kType)) == 0;
  return at;
}

// tanh(x) = x P(x * x) for |x| <= kTanhNear, with a relative error of 2.3e-5. At a cap of 50 that
// is an error of 5e-4 in a score, less than the error of a probability rounded to 16 bits. P was
// fitted for the smallest relative error. Beyond kTanhNear the polynomial keeps rising.
constexpr float kTanhNear = 0.5f;
constexpr float kTanhOfNear = 0.46211716f;

ATTUNE_SCORE_FUNCTION bool tanh_is_near(float x) { return score_abs(x) <= kTanhNear; }

// factor * tanh(slope * x) as a polynomial of x.
struct OddTanh {
  float c1, c3, c5;
  float low;  // its value at the lower end of the near range if it rises with x, else infinity
};
ATTUNE_SCORE_FUNCTION OddTanh odd_tanh_of(float factor, float slope) {
  const float square = slope * slope;
  const float c1 = factor * slope, c3 = c1 * square, c5 = c3 * square;
  const float low = c1 > 0.0f ? -kTanhOfNear * score_abs(factor) : score_infinity();
  return {0.9999774098396301f * c1, -0.3316915035247803f * c3, 0.11520976573228836f * c5, low};
}
// True if no coefficient is so small that it loses digits.
ATTUNE_SCORE_FUNCTION bool is_usable(const OddTanh& t) { return score_abs(t.c5) > 1e-36f; }

ATTUNE_SCORE_FUNCTION float odd_tanh(float x, const OddTanh& t) {
  const float z = x * x;
  return x * ((t.c5 * z + t.c3) * z + t.c1);
}
ATTUNE_SCORE_FUNCTION float near_tanh(float x) { return odd_tanh(x, odd_tanh_of(1.0f, 1.0f)); }

// Linear addend of scores: `base` at the first key of a step, plus `slope` at each further key.
struct ScoreLinear {
  float base;
  float slope;
};

}  // namespace attune
