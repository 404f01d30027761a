// SPDX-License-Identifier: Apache-2.0
// The exponentials of a tanh of scores (templates/cuda/attention/tanh_curve.cuh), compiled for the host: by the polynomial of
// shared/score_steps.h they are as exact as it says, and by the straight line those of the scores themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#define __device__
#define __forceinline__ inline
#define ATTUNE_SCORE_FUNCTION inline

namespace attune {
using std::fmaf;

inline float score_abs(float a) { return std::fabs(a); }
inline float score_infinity() { return std::numeric_limits<float>::infinity(); }
}  // namespace attune

#include "cuda/attention/tanh_curve.cuh"
#include "shared/score_operations.h"
#include "shared/score_steps.h"

namespace attune {
namespace {

constexpr int kCount = 8;
constexpr double kLog2E = 1.4426950408889634;
constexpr double kOfTanh = 2.3e-5;  // score_steps.h

// factor tanh(slope x) of both rows, in log2, where x comes in units of `scale_log2`.
TanhCurve curve_of(const OddTanh (&rows)[2], float scale_log2) {
  TanhCurve curve = {};
  for (int half = 0; half < 2; ++half) {
    curve.c1[half] = rows[half].c1 * scale_log2;
    curve.c3[half] = rows[half].c3 * scale_log2;
    curve.c5[half] = rows[half].c5 * scale_log2;
  }
  return curve;
}

// Both ends of the near range and what is between, of rows with caps of their own.
TEST(TanhCurve, IsATanhToWhatItsHeaderSays) {
  constexpr float kScale = 0.088F;
  for (const auto& [upper, lower] : {std::pair(50.0F, 30.0F), {1.0F, 100.0F}}) {
    const float caps[2] = {upper, lower};
    const OddTanh rows[2] = {odd_tanh_of(upper / kScale, kScale / upper),
                             odd_tanh_of(lower / kScale, kScale / lower)};
    const float scale_log2 = kScale * static_cast<float>(kLog2E);
    for (int step = -100; step <= 100; ++step) {
      const float argument = kTanhNear * static_cast<float>(step) / 100;
      float s[kCount], sum[2] = {1, 2};
      for (int i = 0; i < kCount; ++i) s[i] = argument * caps[i / 2 % 2] / kScale;
      const float max[2] = {3, -2};
      exponentiate_on(curve_of(rows, scale_log2), s, max, sum);
      for (int i = 0; i < kCount; ++i) {
        const int half = i / 2 % 2;
        const double exact = static_cast<double>(caps[half]) * std::tanh(argument) * kLog2E;
        const double found = std::log2(static_cast<double>(s[i])) + static_cast<double>(max[half]);
        EXPECT_NEAR(found, exact, kOfTanh * std::fabs(exact) + 1e-6 * (4 + std::fabs(exact)))
            << argument << " of cap " << caps[half];
      }
      EXPECT_FLOAT_EQ(sum[0], 1 + 4 * s[0]);
      EXPECT_FLOAT_EQ(sum[1], 2 + 4 * s[2]);
    }
  }
}

void exponentiate_straight(float (&s)[kCount], float scale_log2, const float (&max)[2],
                           float (&sum)[2]) {
  float on_curve[2] = {max[0], max[1]};
  lay_straight(s, scale_log2, on_curve);
  exponentiate_on(kStraight, s, on_curve, sum);
}

TEST(TanhCurve, IsStraightForScoresThatAreWhatTheyAreToBe) {
  const float scores[kCount] = {0, 1.5F, -40, 3, 7, -0.25F, 1e-30F, -90};
  const float max[2] = {4, -3};
  float s[kCount], sum[2] = {0, 0};
  std::copy(std::begin(scores), std::end(scores), std::begin(s));
  exponentiate_straight(s, 0.5F, max, sum);
  for (int i = 0; i < kCount; ++i)
    EXPECT_EQ(s[i], std::exp2(scores[i] * 0.5F - max[i / 2 % 2])) << scores[i];
}

// Under the maximum of a row that has seen something, and of one that has not.
TEST(TanhCurve, HiddenScoresCountForNothingAndNanStays) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  for (const float scale : {1e-30F, 1.0F, 1e4F}) {
    float s[kCount] = {kHidden, kHidden, 1, kHidden, kHidden, kHidden, NAN, kHidden};
    const float max[2] = {-1.329227995784916e36F, 1};
    float sum[2] = {0, 0};
    exponentiate_straight(s, scale, max, sum);
    for (const int i : {0, 1, 3, 4, 5, 7}) EXPECT_EQ(s[i], 0) << i << " at " << scale;
    EXPECT_EQ(s[2], std::exp2(scale - 1));
    EXPECT_TRUE(std::isnan(s[6]));
    EXPECT_EQ(sum[0], 0);
    EXPECT_TRUE(std::isnan(sum[1]));
  }
}

}  // namespace
}  // namespace attune
