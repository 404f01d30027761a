// SPDX-License-Identifier: Apache-2.0
// The bits that e4m3 becomes before a product (templates/cuda/ptx/widen_e4m3.cuh), for all codes,
// compiled for the host.
#include <gtest/gtest.h>

#include <cmath>

#include "generator/core/problem/narrow_float.hpp"

#define __device__
#define __forceinline__ inline

#include "cuda/ptx/widen_e4m3.cuh"

namespace attune {
namespace {

template <Dtype kDtype>
void check_all_codes(float (*value_of)(uint16_t)) {
  const float factor = value_of(static_cast<uint16_t>(kWidening<kDtype> & 0xFFFF));
  EXPECT_EQ(kWidening<kDtype> >> 16, kWidening<kDtype> & 0xFFFF);
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned word = code | (code ^ 0x81U) << 8 | (255 - code) << 16 | (code + 77) % 256 << 24;
    unsigned halves[2];
    spread_e4m3<kDtype>(word, halves[0], halves[1]);
    for (int i = 0; i < 4; ++i) {
      const auto byte = static_cast<uint8_t>(word >> 8 * i);
      const float got = factor * value_of(static_cast<uint16_t>(halves[i / 2] >> i % 2 * 16));
      const bool is_nan = std::isnan(from_e4m3(byte));
      EXPECT_EQ(got, is_nan ? std::copysign(480.0F, byte < 128 ? 1.0F : -1.0F) : from_e4m3(byte))
          << "code " << static_cast<int>(byte);
    }
  }
}

TEST(WidenE4m3, GivesEveryValueInBf16) { check_all_codes<Dtype::kBf16>(from_bf16); }
TEST(WidenE4m3, GivesEveryValueInFp16) { check_all_codes<Dtype::kFp16>(from_fp16); }

}  // namespace
}  // namespace attune
