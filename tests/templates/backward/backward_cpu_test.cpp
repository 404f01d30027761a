// SPDX-License-Identifier: Apache-2.0
// backward_cpu, with o and lse from prefill_cpu: compared with backward_reference_cpu, and checked
// by laws that need no reference. Outputs and workspace hold NaN before each run. `attune check`
// compares it with float64 gradients (tuner/oracles/attention_backward.cpp).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/templates/backward/backward_case.hpp"
#include "tests/templates/numerics/device_fixture.hpp"

namespace attune::testing {
namespace {

double tolerance(Dtype dtype) {
  return dtype == Dtype::kFp32 ? 2e-5 : dtype == Dtype::kFp16 ? 1e-3 : 8e-3;
}

class BackwardCpu : public DeviceFixture {
 protected:
  void SetUp() override { open("cpu:2"); }
  static const KernelTemplate& kernel() { return template_by_name("backward_cpu"); }

  static Problem problem(const std::string& text) {
    return parse_problem("op=attention_backward," + text);
  }

  std::vector<Config> configs(const Problem& p) const {
    return kernel().space(spec_of(p), device_->archs().front()).enumerate();
  }

  Config default_of(const KernelTemplate& t, const Problem& p) const {
    return t.default_config(spec_of(p), device_->archs().front(), shape_of(p), device_->facts());
  }

  GradientTensors run(const BackwardCase& c) const {
    return c.run(kernel(), default_of(kernel(), c.problem()));
  }

  void expect_reference(const BackwardCase& c, const Config& config) const {
    const KernelTemplate& reference = template_by_name("backward_reference_cpu");
    const GradientTensors wanted = c.run(reference, Config());
    const GradientTensors found = c.run(kernel(), config);
    EXPECT_EQ(found.all.size(), wanted.all.size());
    for (const auto& [role, tensor] : wanted.all)
      EXPECT_EQ(difference(found.of(role), tensor, tolerance(c.problem().dtype_q)), "")
          << "role " << static_cast<int>(role) << " " << to_text(c.problem()) << " "
          << config.to_text();
    EXPECT_TRUE(c.run(kernel(), config) == found) << "two runs differ: " << to_text(c.problem());
  }
};

// Lengths around tiles, widths that are no multiple of a register, groups, rows without keys, keys
// without rows, gradients singly.
TEST_F(BackwardCpu, GivesTheGradientsOfTheReference) {
  uint64_t seed = 0;
  for (const char* text :
       {"dtype=fp32,head_dim=64,heads=2,seqlen=130,mask=causal_bottom_right",
        "dtype=fp32,head_dim_qk=72,head_dim_v=40,heads=6/2,batch=2,seqlen_q=65,seqlen_kv=239",
        "dtype=fp32,head_dim=16,heads=1,seqlen_q=256,seqlen_kv=3,mask=causal_bottom_right",
        "dtype=fp32,head_dim=24,heads=1,seqlen_q=128,seqlen_kv=1,mask=causal_bottom_right",
        "dtype=fp32,head_dim=32,heads=2,seqlen_q=17,seqlen_kv=400,mask=causal_top_left",
        "dtype=fp32,head_dim=32,heads=2/1,seqlen=300,window=20:0",
        "dtype=fp32,head_dim=32,heads=4/2,seqlen=300,window=3:70,gradients=q",
        "dtype=fp32,head_dim=40,heads=2,seqlen=150,gradients=k",
        "dtype=fp32,head_dim=40,heads=7/1,seqlen=90,gradients=v",
        "dtype=bf16,head_dim=64,heads=4/2,seqlen=200,mask=causal_bottom_right,gradients=kv",
        "dtype=fp16,head_dim=128,heads=2,seqlen_q=1,seqlen_kv=77,gradients=qv",
        "dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen=131,mask=causal_bottom_right,dropout=0.1",
        "dtype=fp32,head_dim=40,heads=3,seqlen_q=70,seqlen_kv=301,window=90:7,dropout=0.6",
        "dtype=bf16,head_dim=64,heads=7/1,seqlen=90,dropout=0.3,gradients=kv",
        "dtype=fp32,head_dim=32,heads=2,seqlen=90,dropout=0.3,gradients=v"}) {
    const Problem p = problem(text);
    const BackwardCase c(device_, p, ++seed, {.heads_first = seed % 2 == 0, .dlse = seed % 3 == 0});
    expect_reference(c, default_of(kernel(), p));
    const std::vector<Config> all = configs(p);
    std::mt19937_64 random(seed);
    expect_reference(c, all[random() % all.size()]);
  }
}

TEST_F(BackwardCpu, ObeysTheLaws) {
  for (const char* text :
       {"dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen=190,mask=causal_bottom_right",
        "dtype=fp32,head_dim=32,heads=2,seqlen_q=190,seqlen_kv=60,mask=causal_bottom_right",
        "dtype=fp32,head_dim_qk=48,head_dim_v=80,heads=3,seqlen=140,window=30:5"}) {
    const BackwardCase c(device_, problem(text), 3);
    const GradientTensors found = run(c);
    EXPECT_EQ(c.sum_of_dv_fault(found), "") << text;
    EXPECT_EQ(c.inner_product_fault(found), "") << text;
  }
}

// Without dout and dlse all gradients are 0. With dlse alone dV is 0, and dQ and dK equal the
// reference's.
TEST_F(BackwardCpu, TakesGradientsOfLseAlone) {
  const Problem p = problem("dtype=fp32,head_dim=64,heads=2/1,seqlen=100,mask=causal_bottom_right");
  const GradientTensors none = run(BackwardCase(device_, p, 5, {.no_dout = true}));
  for (const auto& [role, tensor] : none.all)
    for (const float value : tensor.values) ASSERT_EQ(value, 0.0f) << static_cast<int>(role);
  const BackwardCase c(device_, p, 5, {.dlse = true, .no_dout = true});
  expect_reference(c, default_of(kernel(), p));
  const GradientTensors found = run(c);
  for (const float value : found.of(Role::kDv).values) ASSERT_EQ(value, 0.0f);
}

// One thread computes each sum, in a fixed order.
TEST_F(BackwardCpu, HasTheSameBitsOnAnyNumberOfThreads) {
  const Problem p = problem("dtype=fp32,head_dim=64,heads=6/3,seqlen=260,mask=causal_bottom_right");
  for (const int64_t passes : {1, 2}) {
    Config config = default_of(kernel(), p);
    config.set("passes", passes);
    const GradientTensors two = BackwardCase(device_, p, 9).run(kernel(), config);
    const GradientTensors one = BackwardCase(open_device("cpu:1"), p, 9).run(kernel(), config);
    EXPECT_TRUE(one == two) << "passes " << passes;
  }
}

}  // namespace
}  // namespace attune::testing
