// SPDX-License-Identifier: Apache-2.0
// Kernels of the op attention_backward on a device, fed with o and lse of a forward kernel: against backward_reference_cuda, and by laws
// that need no reference. Outputs and workspace hold NaN before each run. Skips aloud without a GPU.
//   ATTUNE_NUMERICS_SPECS=N   random specs of EveryKernelGivesTheGradientsOfTheReference (default 12)
//   ATTUNE_NUMERICS_SEED=N    first seed (default 1); a failure prints the seed that repeats it
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/templates/backward_case.hpp"
#include "tests/templates/numerics_fixture.hpp"

namespace attune::testing {
namespace {

// Of a gradient of this dtype from another: sums are in fp32 on both sides, P and dS are rounded on one.
double tolerance(Dtype dtype) { return dtype == Dtype::kFp16 ? 2e-3 : 1.2e-2; }

template <class... Values>
std::string pick(std::mt19937_64& random, Values... values) {
  const std::string all[] = {values...};
  return all[random() % sizeof...(values)];
}

std::string random_length(std::mt19937_64& random) {
  return pick(random, "1", "3", "17", "64", "65", "113", "128", "200", "239", "257", "384", "511");
}

Problem random_backward(std::mt19937_64& random) {
  return parse_problem(fmt::format(
      "op=attention_backward,dtype={},{},heads={},batch={},seqlen_q={},seqlen_kv={},mask={}{}{}",
      pick(random, "bf16", "bf16", "fp16"),
      pick(random, "head_dim=64", "head_dim=128", "head_dim=64", "head_dim=128", "head_dim=96",
           "head_dim=256", "head_dim=16", "head_dim=72", "head_dim=200", "head_dim=192",
           "head_dim_qk=192,head_dim_v=128", "head_dim_qk=40,head_dim_v=136",
           "head_dim_qk=104,head_dim_v=16"),
      pick(random, "2/2", "4/1", "6/2", "1/1"), pick(random, "1", "2", "3"), random_length(random),
      random_length(random), pick(random, "none", "causal_top_left", "causal_bottom_right"),
      pick(random, "", "", ",window=20:0", ",window=130:40", ",window=3:-", ",window=-:70"),
      pick(random, "", "", "", ",gradients=q", ",gradients=k", ",gradients=v", ",gradients=qk",
           ",gradients=qv", ",gradients=kv")));
}

class Cuda : public DeviceFixture {
 protected:
  void open_kernel() {
    open("cuda");
    if (device_ && !serves(kernel(), spec_of(parse_problem("op=attention_backward,head_dim=64,"
                                                           "heads=1,seqlen=8"))))
      GTEST_SKIP() << "no device here that backward_sm90 is for";
  }
  static const KernelTemplate& kernel() { return template_by_name("backward_sm90"); }

  Config default_of(const KernelTemplate& t, const Problem& p) const {
    const Arch arch = arch_for(*device_, t, spec_of(p));
    return t.default_config(spec_of(p), arch, shape_of(p), device_->facts());
  }

  GradientTensors run(const KernelTemplate& t, const BackwardCase& c) const {
    return c.run(t, default_of(t, c.problem()));
  }

  void expect_reference(const BackwardCase& c, const Config& config, const std::string& trace) {
    const GradientTensors wanted = run(template_by_name("backward_reference_cuda"), c);
    const GradientTensors found = c.run(kernel(), config);
    for (const Role role : {Role::kDq, Role::kDk, Role::kDv})
      if (found.has(role))
        EXPECT_EQ(difference(found.of(role), wanted.of(role), tolerance(c.problem().dtype_q)), "")
            << trace << " role " << static_cast<int>(role) << " " << to_text(c.problem()) << " "
            << config.to_text();
    EXPECT_TRUE(c.run(kernel(), config) == found) << trace << ": two runs differ";
  }
};

TEST_F(Cuda, EveryKernelGivesTheGradientsOfTheReference) {
  open_kernel();
  if (!device_ || IsSkipped()) return;
  const int first = from_environment("ATTUNE_NUMERICS_SEED", 1);
  const int specs = from_environment("ATTUNE_NUMERICS_SPECS", 12);
  for (int seed = first; seed < first + specs && !HasFailure(); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const Problem p = random_backward(random);
    const BackwardCase c(device_, p, random(),
                         {.heads_first = random() % 2 == 0, .dlse = random() % 2 == 0});
    expect_reference(c, default_of(kernel(), p), fmt::format("seed {}", seed));
    const std::vector<Config> all =
        kernel().space(spec_of(p), arch_for(*device_, kernel(), spec_of(p))).enumerate();
    const Config drawn = all[random() % all.size()];
    if (c.fault(kernel(), drawn).empty())  // the tuner never runs it
      expect_reference(c, drawn, fmt::format("seed {}, drawn", seed));
  }
}

// Sizes at which blocks take many steps and devices many blocks.
TEST_F(Cuda, LongSequencesGiveTheGradientsOfTheReference) {
  open_kernel();
  if (!device_ || IsSkipped()) return;
  for (const char* text :
       {"head_dim=128,heads=8/2,seqlen=1500,mask=causal_bottom_right",
        "head_dim=64,heads=4,seqlen=2100",
        "head_dim=256,heads=4/2,seqlen_q=1000,seqlen_kv=1300,mask=causal_top_left",
        "head_dim=64,heads=16/4,seqlen=1100,mask=causal_bottom_right,window=100:0"}) {
    const Problem p =
        parse_problem(std::string("op=attention_backward,batch=2,dtype=bf16,") + text);
    expect_reference(BackwardCase(device_, p, 7), default_of(kernel(), p), "long");
  }
}

// sum_j dV_j = sum_i dout_i over rows that see a key, since each row of P sums to 1; <Q, dQ> = <K, dK>, since both are <S, dS>.
TEST_F(Cuda, SumsOfGradientsKeepTheirLaws) {
  open_kernel();
  if (!device_ || IsSkipped()) return;
  for (const char* text :
       {"head_dim=128,heads=4/2,seqlen=300,mask=causal_bottom_right",
        "head_dim=64,heads=2,seqlen_q=500,seqlen_kv=100,mask=causal_bottom_right",
        "head_dim=256,heads=2,seqlen_q=130,seqlen_kv=700,window=50:20"}) {
    const Problem p =
        parse_problem(std::string("op=attention_backward,batch=2,dtype=bf16,") + text);
    const BackwardCase c(device_, p, 3);
    const GradientTensors found = run(kernel(), c);
    EXPECT_EQ(c.sum_of_dv_fault(found), "") << text;
    EXPECT_EQ(c.inner_product_fault(found), "") << text;
  }
}

// Without dout, dS is P times the gradient of lse.
TEST_F(Cuda, TheGradientOfLseAloneGivesThoseOfQAndK) {
  open_kernel();
  if (!device_ || IsSkipped()) return;
  for (const char* text : {"head_dim=128,heads=4/2,seqlen=300,mask=causal_bottom_right",
                           "head_dim=64,heads=2,seqlen_q=77,seqlen_kv=400"}) {
    const Problem p =
        parse_problem(std::string("op=attention_backward,batch=2,dtype=bf16,") + text);
    const BackwardCase c(device_, p, 5, {.dlse = true, .no_dout = true});
    expect_reference(c, default_of(kernel(), p), "dlse alone");
    const GradientTensors found = run(kernel(), c);
    for (const float value : found.of(Role::kDv).values) ASSERT_EQ(value, 0.F);
  }
}

// Rows that see no key, and keys that no row sees, have no gradient: written as 0 over what stood there.
TEST_F(Cuda, WhatSeesNothingHasNoGradient) {
  open_kernel();
  if (!device_ || IsSkipped()) return;
  const Problem rows = parse_problem(
      "op=attention_backward,dtype=bf16,head_dim=64,heads=2,seqlen_q=300,seqlen_kv=40,"
      "mask=causal_bottom_right");
  const GradientTensors of_rows = run(kernel(), BackwardCase(device_, rows, 1));
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t row = 0; row < 260; ++row)
      for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(of_rows.of(Role::kDq).at(0, head, row, i), 0.F);
  const Problem keys = parse_problem(
      "op=attention_backward,dtype=bf16,head_dim=64,heads=2,seqlen_q=40,seqlen_kv=300,"
      "mask=causal_top_left");
  const GradientTensors of_keys = run(kernel(), BackwardCase(device_, keys, 1));
  for (const Role role : {Role::kDk, Role::kDv})
    for (int64_t head = 0; head < 2; ++head)
      for (int64_t key = 40; key < 300; ++key)
        for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(of_keys.of(role).at(0, head, key, i), 0.F);
}

}  // namespace
}  // namespace attune::testing
