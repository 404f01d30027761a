// SPDX-License-Identifier: Apache-2.0
// Interval arithmetic for the operations of a mask program (generator/score/print/source_text.hpp).
// Each operand is a range that holds all its values. The result holds every value that the
// operation gives for values of the operands; it may hold more. Ints are exact while nothing wraps.
// For floats only operations without rounding have a bound: the compiler decides whether a product
// and a sum are fused, and a bound must hold either way. Include this after score_operations.h and
// a target's score functions.
#pragma once

namespace attune {

struct IntRange {
  int lo;
  int hi;
};

// {false, true} is a bool that may have either value.
struct BoolRange {
  bool lo;
  bool hi;
};

// `known`: the value is never NaN and lies in [lo, hi].
struct FloatRange {
  float lo;
  float hi;
  bool known;
};

constexpr long long kLowestInt = -2147483647ll - 1, kLargestInt = 2147483647ll;

ATTUNE_SCORE_FUNCTION IntRange int_range(int value) { return {value, value}; }
ATTUNE_SCORE_FUNCTION IntRange any_int() {
  return {static_cast<int>(kLowestInt), static_cast<int>(kLargestInt)};
}
ATTUNE_SCORE_FUNCTION BoolRange bool_range(bool value) { return {value, value}; }
ATTUNE_SCORE_FUNCTION FloatRange float_range(float value) { return {value, value, value == value}; }
ATTUNE_SCORE_FUNCTION FloatRange any_float() { return {0.0f, 0.0f, false}; }

ATTUNE_SCORE_FUNCTION bool is_one(IntRange a) { return a.lo == a.hi; }
// Returns [lo, hi], or any int if a bound lies outside the ints, because results then wrap.
ATTUNE_SCORE_FUNCTION IntRange wrapped(long long lo, long long hi) {
  if (lo < kLowestInt || hi > kLargestInt) return any_int();
  return {static_cast<int>(lo), static_cast<int>(hi)};
}
// Returns the range of an operation without a rule for ranges: exact if both operands are single
// numbers, else any int.
template <class Function>
ATTUNE_SCORE_FUNCTION IntRange of_numbers(IntRange a, IntRange b, Function function) {
  return is_one(a) && is_one(b) ? int_range(function(a.lo, b.lo)) : any_int();
}

ATTUNE_SCORE_FUNCTION IntRange range_negate(IntRange a) {
  return wrapped(-static_cast<long long>(a.hi), -static_cast<long long>(a.lo));
}
ATTUNE_SCORE_FUNCTION IntRange range_add(IntRange a, IntRange b) {
  return wrapped(static_cast<long long>(a.lo) + b.lo, static_cast<long long>(a.hi) + b.hi);
}
ATTUNE_SCORE_FUNCTION IntRange range_subtract(IntRange a, IntRange b) {
  return wrapped(static_cast<long long>(a.lo) - b.hi, static_cast<long long>(a.hi) - b.lo);
}
ATTUNE_SCORE_FUNCTION IntRange range_multiply(IntRange a, IntRange b) {
  const long long corner[4] = {
      static_cast<long long>(a.lo) * b.lo, static_cast<long long>(a.lo) * b.hi,
      static_cast<long long>(a.hi) * b.lo, static_cast<long long>(a.hi) * b.hi};
  long long lo = corner[0], hi = corner[0];
  for (int i = 1; i < 4; ++i) {
    lo = corner[i] < lo ? corner[i] : lo;
    hi = corner[i] > hi ? corner[i] : hi;
  }
  return wrapped(lo, hi);
}

// With a single positive divisor, quotients rise with the dividend. Remainders are bounded exactly
// if all quotients are equal; else they may be any number below the divisor.
ATTUNE_SCORE_FUNCTION IntRange range_div(IntRange a, IntRange b) {
  if (is_one(b) && b.lo > 0) return {score_div(a.lo, b.lo), score_div(a.hi, b.lo)};
  return of_numbers(a, b, [](int x, int y) { return score_div(x, y); });
}
ATTUNE_SCORE_FUNCTION IntRange range_mod(IntRange a, IntRange b) {
  if (!is_one(b) || b.lo <= 0)
    return of_numbers(a, b, [](int x, int y) { return score_mod(x, y); });
  const bool one_sign = a.lo >= 0 || a.hi <= 0;
  if (one_sign && score_div(a.lo, b.lo) == score_div(a.hi, b.lo))
    return {score_mod(a.lo, b.lo), score_mod(a.hi, b.lo)};
  return {a.lo < 0 ? 1 - b.lo : 0, a.hi > 0 ? b.lo - 1 : 0};
}
ATTUNE_SCORE_FUNCTION IntRange range_floordiv(IntRange a, IntRange b) {
  if (is_one(b) && b.lo > 0) return {score_floordiv(a.lo, b.lo), score_floordiv(a.hi, b.lo)};
  return of_numbers(a, b, [](int x, int y) { return score_floordiv(x, y); });
}
ATTUNE_SCORE_FUNCTION IntRange range_floormod(IntRange a, IntRange b) {
  if (!is_one(b) || b.lo <= 0)
    return of_numbers(a, b, [](int x, int y) { return score_floormod(x, y); });
  if (score_floordiv(a.lo, b.lo) == score_floordiv(a.hi, b.lo))
    return {score_floormod(a.lo, b.lo), score_floormod(a.hi, b.lo)};
  return {0, b.lo - 1};
}

// The bits are bounded if both numbers are known or if one operand is never negative.
ATTUNE_SCORE_FUNCTION IntRange range_bit_and(IntRange a, IntRange b) {
  if (is_one(a) && is_one(b)) return int_range(a.lo & b.lo);
  if (a.lo < 0 && b.lo < 0) return any_int();
  return {0, a.lo < 0 ? b.hi : b.lo < 0 ? a.hi : score_min(a.hi, b.hi)};
}
ATTUNE_SCORE_FUNCTION IntRange range_bit_or(IntRange a, IntRange b) {
  return of_numbers(a, b, [](int x, int y) { return x | y; });
}
ATTUNE_SCORE_FUNCTION IntRange range_bit_xor(IntRange a, IntRange b) {
  return of_numbers(a, b, [](int x, int y) { return x ^ y; });
}
ATTUNE_SCORE_FUNCTION IntRange range_bit_not(IntRange a) { return {~a.hi, ~a.lo}; }
ATTUNE_SCORE_FUNCTION IntRange range_shift_left(IntRange a, IntRange b) {
  if (!is_one(b)) return any_int();
  const long long factor = 1ll << (b.lo & 31);
  const IntRange inside = wrapped(a.lo * factor, a.hi * factor);
  return is_one(a) ? int_range(score_shift_left(a.lo, b.lo)) : inside;
}
ATTUNE_SCORE_FUNCTION IntRange range_shift_right(IntRange a, IntRange b) {
  if (!is_one(b)) return any_int();
  return {score_shift_right(a.lo, b.lo), score_shift_right(a.hi, b.lo)};
}

ATTUNE_SCORE_FUNCTION IntRange range_abs(IntRange a) {
  if (a.lo >= 0) return a;
  if (a.hi <= 0) return range_negate(a);
  return wrapped(
      0, score_max(a.hi, 0) > -static_cast<long long>(a.lo) ? a.hi : -static_cast<long long>(a.lo));
}
ATTUNE_SCORE_FUNCTION IntRange range_min(IntRange a, IntRange b) {
  return {score_min(a.lo, b.lo), score_min(a.hi, b.hi)};
}
ATTUNE_SCORE_FUNCTION IntRange range_max(IntRange a, IntRange b) {
  return {score_max(a.lo, b.lo), score_max(a.hi, b.hi)};
}
template <class Range>
ATTUNE_SCORE_FUNCTION Range range_clamp(Range a, Range low, Range high) {
  return range_min(range_max(a, low), high);
}

ATTUNE_SCORE_FUNCTION FloatRange known_floats(float lo, float hi, bool known) {
  return known ? FloatRange{lo, hi, true} : any_float();
}
ATTUNE_SCORE_FUNCTION FloatRange range_negate(FloatRange a) {
  return known_floats(-a.hi, -a.lo, a.known);
}
ATTUNE_SCORE_FUNCTION FloatRange range_min(FloatRange a, FloatRange b) {
  return known_floats(score_min(a.lo, b.lo), score_min(a.hi, b.hi), a.known && b.known);
}
ATTUNE_SCORE_FUNCTION FloatRange range_max(FloatRange a, FloatRange b) {
  return known_floats(score_max(a.lo, b.lo), score_max(a.hi, b.hi), a.known && b.known);
}
ATTUNE_SCORE_FUNCTION FloatRange range_abs(FloatRange a) {
  const float largest = score_max(score_abs(a.lo), score_abs(a.hi));
  const float least = score_min(score_abs(a.lo), score_abs(a.hi));
  return known_floats(a.lo <= 0.0f && a.hi >= 0.0f ? 0.0f : least, largest, a.known);
}
ATTUNE_SCORE_FUNCTION FloatRange range_floor(FloatRange a) {
  return known_floats(score_floor(a.lo), score_floor(a.hi), a.known);
}
// These operations round, so their result has no bounds.
ATTUNE_SCORE_FUNCTION FloatRange range_add(FloatRange, FloatRange) { return any_float(); }
ATTUNE_SCORE_FUNCTION FloatRange range_subtract(FloatRange, FloatRange) { return any_float(); }
ATTUNE_SCORE_FUNCTION FloatRange range_multiply(FloatRange, FloatRange) { return any_float(); }
ATTUNE_SCORE_FUNCTION FloatRange range_div(FloatRange, FloatRange) { return any_float(); }

// Conversions are monotonic.
ATTUNE_SCORE_FUNCTION FloatRange range_float(IntRange a) {
  return {static_cast<float>(a.lo), static_cast<float>(a.hi), true};
}
ATTUNE_SCORE_FUNCTION FloatRange range_float(BoolRange a) {
  return {a.lo ? 1.0f : 0.0f, a.hi ? 1.0f : 0.0f, true};
}
ATTUNE_SCORE_FUNCTION IntRange range_int(FloatRange a) {
  return a.known ? IntRange{score_int(a.lo), score_int(a.hi)} : any_int();
}
ATTUNE_SCORE_FUNCTION IntRange range_int(BoolRange a) { return {a.lo ? 1 : 0, a.hi ? 1 : 0}; }

ATTUNE_SCORE_FUNCTION BoolRange range_not(BoolRange a) { return {!a.hi, !a.lo}; }
ATTUNE_SCORE_FUNCTION BoolRange range_and(BoolRange a, BoolRange b) {
  return {a.lo && b.lo, a.hi && b.hi};
}
ATTUNE_SCORE_FUNCTION BoolRange range_or(BoolRange a, BoolRange b) {
  return {a.lo || b.lo, a.hi || b.hi};
}
ATTUNE_SCORE_FUNCTION BoolRange range_less(IntRange a, IntRange b) {
  return {a.hi < b.lo, a.lo < b.hi};
}
ATTUNE_SCORE_FUNCTION BoolRange range_less(FloatRange a, FloatRange b) {
  const bool known = a.known && b.known;
  return {known && a.hi < b.lo, !known || a.lo < b.hi};
}
ATTUNE_SCORE_FUNCTION BoolRange range_less_equal(IntRange a, IntRange b) {
  return {a.hi <= b.lo, a.lo <= b.hi};
}
ATTUNE_SCORE_FUNCTION BoolRange range_less_equal(FloatRange a, FloatRange b) {
  const bool known = a.known && b.known;
  return {known && a.hi <= b.lo, !known || a.lo <= b.hi};
}
ATTUNE_SCORE_FUNCTION BoolRange range_equal(IntRange a, IntRange b) {
  return {is_one(a) && is_one(b) && a.lo == b.lo, a.lo <= b.hi && b.lo <= a.hi};
}
ATTUNE_SCORE_FUNCTION BoolRange range_equal(FloatRange a, FloatRange b) {
  const bool known = a.known && b.known;
  return {known && a.lo == a.hi && b.lo == b.hi && a.lo == b.lo,
          !known || (a.lo <= b.hi && b.lo <= a.hi)};
}
ATTUNE_SCORE_FUNCTION BoolRange range_equal(BoolRange a, BoolRange b) {
  return range_equal(range_int(a), range_int(b));
}
template <class Range>
ATTUNE_SCORE_FUNCTION BoolRange range_not_equal(Range a, Range b) {
  return range_not(range_equal(a, b));
}

ATTUNE_SCORE_FUNCTION IntRange hull(IntRange a, IntRange b) {
  return {score_min(a.lo, b.lo), score_max(a.hi, b.hi)};
}
ATTUNE_SCORE_FUNCTION FloatRange hull(FloatRange a, FloatRange b) {
  return known_floats(score_min(a.lo, b.lo), score_max(a.hi, b.hi), a.known && b.known);
}
ATTUNE_SCORE_FUNCTION BoolRange hull(BoolRange a, BoolRange b) {
  return {a.lo && b.lo, a.hi || b.hi};
}
template <class Range>
ATTUNE_SCORE_FUNCTION Range range_select(BoolRange condition, Range a, Range b) {
  if (condition.lo) return a;
  return condition.hi ? hull(a, b) : b;
}

// The most elements of a capture that a range of a load reads. With more, reading them is not worth
// the time.
constexpr long long kMostRangeLoads = 1024;

// The elements of a capture whose indices are in given ranges, clamped like the indices of a load:
// first index and count per dimension.
template <int kRank>
struct CaptureBox {
  int first[kRank + 1];  // one more, because arrays cannot be empty
  int counts[kRank + 1];
  long long size;
};

template <class... Index>
ATTUNE_SCORE_FUNCTION auto capture_box(const ScoreCapture& capture, Index... indices) {
  static_assert(sizeof...(Index) <= kMaxCaptureRank, "a capture has at most 4 dimensions");
  CaptureBox<sizeof...(Index)> box{{}, {}, 1};
  int d = 0;
  const auto add = [&](IntRange index) {
    const int last = capture.extents[d] - 1;
    box.first[d] = score_max(score_min(index.lo, last), 0);
    box.counts[d] = score_max(score_min(index.hi, last), 0) - box.first[d] + 1;
    // The product fits in a long long, because the first factor is at most kMostRangeLoads here.
    if (box.size <= kMostRangeLoads) box.size *= box.counts[d];
    ++d;
  };
  (add(indices), ...);
  return box;
}

// Returns the offset of the first element of a box from the capture's data.
template <int kRank>
ATTUNE_SCORE_FUNCTION long long box_offset_of_first(const CaptureBox<kRank>& box,
                                                    const ScoreCapture& capture) {
  long long at = 0;
#pragma unroll
  for (int d = 0; d < kRank; ++d) at += box.first[d] * capture.strides[d];
  return at;
}

// Returns the offset of element `number` of a box from the capture's data.
template <int kRank>
ATTUNE_SCORE_FUNCTION long long box_offset(const CaptureBox<kRank>& box,
                                           const ScoreCapture& capture, int number) {
  long long at = 0;
#pragma unroll
  for (int d = kRank - 1; d >= 0; --d) {
    const int left = d > 0 ? number / box.counts[d] : 0;
    at += (box.first[d] + number - left * box.counts[d]) * capture.strides[d];
    number = left;
  }
  return at;
}

// The smallest and the largest element taken so far; empty at first.
template <class Element>
struct Gathered {
  Element lo;
  Element hi;
  bool known;
};
ATTUNE_SCORE_FUNCTION Gathered<int> nothing_of(int) { return {any_int().hi, any_int().lo, true}; }
ATTUNE_SCORE_FUNCTION Gathered<float> nothing_of(float) {
  return {score_infinity(), -score_infinity(), true};
}
ATTUNE_SCORE_FUNCTION Gathered<bool> nothing_of(bool) { return {true, false, true}; }

template <class Element>
ATTUNE_SCORE_FUNCTION void take(Gathered<Element>& of, Element lo, Element hi, bool known) {
  of.lo = lo < of.lo ? lo : of.lo;
  of.hi = hi > of.hi ? hi : of.hi;
  of.known = of.known && known;
}

ATTUNE_SCORE_FUNCTION IntRange unseen(int) { return any_int(); }
ATTUNE_SCORE_FUNCTION FloatRange unseen(float) { return any_float(); }
ATTUNE_SCORE_FUNCTION BoolRange unseen(bool) { return {false, true}; }
ATTUNE_SCORE_FUNCTION IntRange range_of(const Gathered<int>& of) { return {of.lo, of.hi}; }
ATTUNE_SCORE_FUNCTION FloatRange range_of(const Gathered<float>& of) {
  return known_floats(of.lo, of.hi, of.known);
}
ATTUNE_SCORE_FUNCTION BoolRange range_of(const Gathered<bool>& of) { return {of.lo, of.hi}; }

}  // namespace attune
