// SPDX-License-Identifier: Apache-2.0
// Every code of the narrow floats, and rounding, saturation and NaN at their edges.
#include "generator/core/problem/narrow_float.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace attune {
namespace {

TEST(NarrowFloat, SixteenBitsRoundTripAndRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    ASSERT_TRUE(std::isnan(from_fp16(b)) || to_fp16(from_fp16(b)) == b) << bits;
    ASSERT_TRUE(std::isnan(from_bf16(b)) || to_bf16(from_bf16(b)) == b) << bits;
  }
  EXPECT_EQ(from_bf16(to_bf16(1.0F + 0x1p-8F)), 1.0F);  // halfway, to even
  EXPECT_EQ(from_bf16(to_bf16(1.0F + 0x3p-8F)), 1.0F + 0x4p-8F);
  EXPECT_EQ(from_fp16(to_fp16(1.0F + 0x1p-11F)), 1.0F);
  EXPECT_EQ(from_fp16(to_fp16(1.0F + 0x3p-11F)), 1.0F + 0x4p-11F);
  EXPECT_EQ(from_fp16(to_fp16(65519.0F)), 65504.0F);
  EXPECT_TRUE(std::isinf(from_fp16(to_fp16(65520.0F))));
  EXPECT_EQ(from_fp16(to_fp16(0x1p-25F)), 0.0F);
  EXPECT_EQ(from_fp16(to_fp16(0x1.8p-24F)), 0x1p-23F);
  EXPECT_TRUE(std::isnan(from_fp16(to_fp16(NAN))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(NAN))));
}

TEST(NarrowFloat, EightBitsRoundTrip) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const auto b = static_cast<uint8_t>(bits);
    const bool e4m3_nan = (bits & 0x7f) == 0x7f;
    ASSERT_EQ(std::isnan(from_e4m3(b)), e4m3_nan) << bits;
    ASSERT_TRUE(e4m3_nan || to_e4m3(from_e4m3(b)) == b) << bits;
    const float wide = from_e5m2(b);
    ASSERT_EQ(std::isnan(wide), (bits & 0x7f) > 0x7c) << bits;
    ASSERT_EQ(std::isinf(wide), (bits & 0x7f) == 0x7c) << bits;
    ASSERT_TRUE(!std::isfinite(wide) || to_e5m2(wide) == b) << bits;
  }
  EXPECT_EQ(from_e4m3(0x7e), 448.0F);
  EXPECT_EQ(from_e4m3(0x01), 0x1p-9F);
  EXPECT_EQ(from_e4m3(0x38), 1.0F);
  EXPECT_EQ(from_e5m2(0x7b), 57344.0F);
  EXPECT_EQ(from_e5m2(0x01), 0x1p-16F);
}

// Between two neighbours, values round to the nearer one, and the middle rounds to the even one.
template <class To, class From>
void expect_nearest(const To& to, const From& from, uint8_t largest) {
  for (uint8_t b = 0; b < largest; ++b) {
    const auto above = static_cast<uint8_t>(b + 1);
    const float middle = (from(b) + from(above)) / 2;
    EXPECT_EQ(to(middle), b % 2 == 0 ? b : above) << int{b};
    EXPECT_EQ(to(std::nextafter(middle, 0.0F)), b);
    EXPECT_EQ(to(std::nextafter(middle, INFINITY)), above);
    EXPECT_EQ(to(-middle), (b % 2 == 0 ? b : above) | 0x80);
  }
}

TEST(NarrowFloat, EightBitsRoundToNearestEvenAndSaturate) {
  expect_nearest(to_e4m3, from_e4m3, 0x7e);
  expect_nearest(to_e5m2, from_e5m2, 0x7b);
  for (const float large : {449.0F, 464.0F, 1e9F}) {
    EXPECT_EQ(to_e4m3(large), 0x7e);
    EXPECT_EQ(to_e4m3(-large), 0xfe);
  }
  for (const float large : {57345.0F, 65536.0F, 1e9F}) EXPECT_EQ(to_e5m2(large), 0x7b);
  EXPECT_EQ(to_e4m3(-INFINITY), 0xff);  // NaN: there is no infinity
  EXPECT_EQ(to_e5m2(INFINITY), 0x7c);
  EXPECT_EQ(to_e5m2(-INFINITY), 0xfc);
  EXPECT_TRUE(std::isnan(from_e4m3(to_e4m3(NAN))));
  EXPECT_TRUE(std::isnan(from_e5m2(to_e5m2(NAN))));
  EXPECT_EQ(to_e4m3(-0.0F), 0x80);
}

TEST(NarrowFloat, ElementsOfEveryDtypeAreStoredAndLoaded) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3, Dtype::kE5m2}) {
    float array[4] = {};
    store_element(dtype, array, 2, -1.5F);
    EXPECT_EQ(load_element(dtype, array, 2), -1.5F) << dtype_name(dtype);
    EXPECT_EQ(load_element(dtype, array, 1), 0.0F) << dtype_name(dtype);
    EXPECT_EQ(load_element(dtype, array, 3), 0.0F) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace attune
