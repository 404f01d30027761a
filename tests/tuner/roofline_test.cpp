// SPDX-License-Identifier: Apache-2.0
// Compares the least time of a problem with numbers from data sheets.
#include "tuner/measure/roofline.hpp"

#include <gtest/gtest.h>

#include "generator/core/problem/problem.hpp"

namespace attune {
namespace {

DeviceIdentity h200() {
  return {"sm_90", 132, 232448, 65536, 50 << 20, 6144, 3201000, "", "NVIDIA H200", ""};
}

TEST(Roofline, PeaksEqualTheDataSheets) {
  EXPECT_NEAR(flops_per_clock("sm_90", Dtype::kBf16, false) * 132 * 1830e6, 989e12, 2e12);
  EXPECT_NEAR(flops_per_clock("sm_80", Dtype::kFp16, false) * 108 * 1410e6, 312e12, 1e12);
  EXPECT_NEAR(flops_per_clock("sm_80", Dtype::kFp32, true) * 108 * 1410e6, 156e12, 1e12);
  EXPECT_NEAR(flops_per_clock("sm_89", Dtype::kE4m3, false) * 128 * 2520e6, 330e12, 1e12);
  EXPECT_EQ(flops_per_clock("sm_80", Dtype::kE4m3, false), 0) << "it has no 8-bit products";
  EXPECT_EQ(flops_per_clock("sm_31", Dtype::kBf16, false), 0);
}

TEST(Roofline, LongPrefillIsBoundByProducts) {
  const Problem problem =
      parse_problem("dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=8192,mask=none");
  const Roofline r = roofline_of(problem, h200(), 1830);
  EXPECT_DOUBLE_EQ(r.flops, 4.0 * 32 * 8192 * 8192 * 128);
  EXPECT_TRUE(r.bound_by_flops());
  EXPECT_NEAR(r.bound_us(), 1111, 3);
  EXPECT_NEAR(r.share(2222), 0.5, 0.002);
}

TEST(Roofline, OneRowIsBoundByMemory) {
  const Problem problem = parse_problem(
      "dtype=bf16,head_dim=128,heads=32/8,batch=16,seqlen_q=1,seqlen_kv=8192,mask=none");
  const Roofline r = roofline_of(problem, h200(), 1830);
  EXPECT_FALSE(r.bound_by_flops());
  EXPECT_NEAR(r.bound_us(), 2.0 * 16 * 8 * 8192 * 128 * 2 / 4.917e12 * 1e6, 1);
}

TEST(Roofline, UnknownPeaksAreZero) {
  const Problem problem = parse_problem("dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=64");
  EXPECT_EQ(roofline_of(problem, h200(), 0).bound_us(), 0) << "the clock was not read";
  DeviceIdentity cpu;
  cpu.arch = "cpu:znver4";
  EXPECT_EQ(roofline_of(problem, cpu, 3000).share(10), 0);
}

}  // namespace
}  // namespace attune
