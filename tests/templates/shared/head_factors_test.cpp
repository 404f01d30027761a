// SPDX-License-Identifier: Apache-2.0
// The largest factor of the keys that a query row sees
// (templates/cuda/prefill_sm90_fp8/head_factors.cuh), compiled for the host and compared with brute
// force. One program per mask, as attention_parts_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#define __device__
#define __forceinline__ inline

namespace attune {
using std::max;
using std::min;

inline float fmaxf(float a, float b) { return std::fmax(a, b); }
inline float __ldg(const float* address) { return *address; }
inline float __int_as_float(int bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace attune

#include "templates/shared/attention_enums.h"

namespace attune {
constexpr Mask kMask = Mask::ATTUNE_TEST_MASK;
constexpr int kWindowLeft = ATTUNE_TEST_LEFT;
constexpr int kWindowRight = ATTUNE_TEST_RIGHT;
}  // namespace attune

#include "cuda/prefill_sm90_fp8/head_factors.cuh"

namespace attune {
namespace {

constexpr int kGroupRows = 64;

template <int kScaleBlock>
void check(int seqlen_q, int seqlen_kv, std::mt19937_64* random) {
  std::vector<float> values(static_cast<size_t>((seqlen_kv + kScaleBlock - 1) / kScaleBlock));
  for (float& value : values) value = static_cast<float>((*random)() % 1000 + 1);
  if (values.size() > 3) values[2] = NAN, values[3] = INFINITY;
  AttentionArgs args = {};
  args.seqlen_q = seqlen_q;
  args.seqlen_kv = seqlen_kv;
  const HeadFactors<kScaleBlock> factors(ScaleView{values.data(), 0, 0, 1, 1}, 0, 0);
  for (int first = 0; first < seqlen_q; first += kGroupRows) {
    const CommonKeys common = common_keys(args, first, kGroupRows);
    float shared = 0;  // as the lanes of a warp do
    for (int lane = 0; lane < 32; ++lane)
      shared = std::max(shared, factors.largest(common.begin, common.end, lane, 32));
    for (int row = first; row < std::min(first + kGroupRows, seqlen_q); ++row) {
      float largest = 0;
      const KeyInterval<int> seen = visible_keys(args, row);
      for (int key = seen.first; key <= seen.last; ++key)
        if (const float value = values[static_cast<size_t>(key / kScaleBlock)];
            std::isfinite(value))
          largest = std::max(largest, value);
      ASSERT_EQ(largest_seen(factors, args, row, common, shared), largest)
          << seqlen_q << " x " << seqlen_kv << " row " << row << " block " << kScaleBlock;
    }
  }
}

TEST(HeadFactors, LargestCoversTheKeysThatTheRowSees) {
  std::mt19937_64 random(7);
  for (const auto& [seqlen_q, seqlen_kv] :
       {std::pair{70, 70}, {300, 700}, {700, 300}, {1, 500}, {500, 1}, {129, 1025}, {5, 0}}) {
    check<16>(seqlen_q, seqlen_kv, &random);
    check<48>(seqlen_q, seqlen_kv, &random);
    check<128>(seqlen_q, seqlen_kv, &random);
    check<1024>(seqlen_q, seqlen_kv, &random);
  }
}

TEST(HeadFactors, ReadsByHeadAndBlock) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};  // [batch 2][factors 2][blocks 2]
  std::vector<float> copy = values;
  const ScaleView view{copy.data(), 4, 2, 1, 3};  // three heads share a factor
  EXPECT_EQ((HeadFactors<32>(view, 1, 5).of_row(40)), 8);
  EXPECT_EQ((HeadFactors<32>(view, 0, 2).of_row(31)), 1);
  EXPECT_EQ((HeadFactors<0>(view, 1, 0).of_row(1000)), 5);
  EXPECT_EQ((HeadFactors<32>(ScaleView{nullptr, 0, 0, 0, 1}, 3, 3).of_row(9)), 1);
}

}  // namespace
}  // namespace attune
