// SPDX-License-Identifier: Apache-2.0
// Kernels of the op attention_backward on a device, fed with o and lse of a forward kernel: against
// backward_reference_cuda, and by laws that need no reference. Outputs and workspace hold NaN
// before each run. Skips aloud without a GPU.
//   ATTUNE_NUMERICS_TEMPLATE=NAME   only this family
//   ATTUNE_NUMERICS_SPECS=N   specs of EveryKernelGivesTheGradientsOfTheReference (default 12)
//   ATTUNE_NUMERICS_SEED=N    first seed (default 1); a failure prints the seed that repeats it
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/templates/backward/backward_case.hpp"
#include "tests/templates/backward/backward_sm90_cases.hpp"
#include "tests/templates/numerics/numerics_fixture.hpp"

namespace attune::testing {
namespace {

// Returns the allowed difference of two gradients of this dtype: sums are in fp32 on both sides, P
// and dS are rounded on one.
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
      "op=attention_backward,dtype={},{},heads={},batch={},seqlen_q={},seqlen_kv={},mask={}{}{}{}",
      pick(random, "bf16", "bf16", "fp16"),
      pick(random, "head_dim=64", "head_dim=128", "head_dim=64", "head_dim=128", "head_dim=96",
           "head_dim=256", "head_dim=16", "head_dim=72", "head_dim=200", "head_dim=192",
           "head_dim_qk=192,head_dim_v=128", "head_dim_qk=40,head_dim_v=136",
           "head_dim_qk=104,head_dim_v=16"),
      pick(random, "2/2", "4/1", "6/2", "1/1"), pick(random, "1", "2", "3"), random_length(random),
      random_length(random), pick(random, "none", "causal_top_left", "causal_bottom_right"),
      pick(random, "", "", ",window=20:0", ",window=130:40", ",window=3:-", ",window=-:70"),
      pick(random, "", "", "", ",gradients=q", ",gradients=k", ",gradients=v", ",gradients=qk",
           ",gradients=qv", ",gradients=kv"),
      pick(random, "", ",deterministic=1")));
}

// True if every row sees at most one key. Then P is 1, and dq and dk are 0 except for dlse's part,
// so they have no relative error.
bool sees_one_key(const Problem& p) {
  return p.seqlen_kv == 1 || (p.seqlen_q == 1 && p.mask == Mask::kCausalTopLeft);
}

// Rows [first, end) of each head of one batch entry.
bool all_zero(const HostTensor& tensor, int64_t first, int64_t end) {
  for (int64_t head = 0; head < tensor.heads; ++head)
    for (int64_t row = first; row < end; ++row)
      for (int64_t i = 0; i < tensor.columns; ++i)
        if (tensor.at(0, head, row, i) != 0.F) return false;
  return true;
}

class Cuda : public DeviceFixture {
 protected:
  // Opens the families that may run on this device, and the reference.
  void open_families() {
    open("cuda");
    if (!device_) return;
    // All families serve one of these.
    for (const char* text : {"heads=1,seqlen=8", "heads=1,seqlen=8,window=4:0"})
      for (const KernelTemplate* t : families_for(
               parse_problem(std::string("op=attention_backward,dtype=fp16,head_dim=64,") + text)))
        if (std::find(families_.begin(), families_.end(), t) == families_.end())
          families_.push_back(t);
    if (families_.empty()) GTEST_SKIP() << "no device here that a family with gradients is for";
  }

  // Returns the asked families that may run the problem on this device.
  std::vector<const KernelTemplate*> families_for(const Problem& p) const {
    const std::vector<const KernelTemplate*> asked = asked_templates();
    std::vector<const KernelTemplate*> all;
    for (const Family& family : serving(spec_of(p), device_->archs()).families)
      if (std::find(asked.begin(), asked.end(), family.kernel_template) != asked.end() &&
          family.kernel_template->fit(spec_of(p), shape_of(p)) != ::attune::Fit::kNever)
        all.push_back(family.kernel_template);
    return all;
  }

  Config default_of(const KernelTemplate& t, const Problem& p) const {
    const Arch arch = arch_for(*device_, t, spec_of(p));
    return t.default_config(spec_of(p), arch, shape_of(p), device_->facts());
  }

  GradientTensors run(const KernelTemplate& t, const BackwardCase& c) const {
    return c.run(t, default_of(t, c.problem()));
  }

  // Two runs give the same bits, except for kernels that add to dq in any order.
  void expect_reference(const BackwardCase& c, const KernelTemplate& t, const Config& config,
                        const std::string& trace) {
    const GradientTensors wanted = run(template_by_name("backward_reference_cuda"), c);
    const GradientTensors found = c.run(t, config), again = c.run(t, config);
    for (const GradientTensors* one : {&found, &again})
      for (const Role role : {Role::kDq, Role::kDk, Role::kDv})
        if (one->has(role)) {
          EXPECT_EQ(difference(one->of(role), wanted.of(role), tolerance(c.problem().dtype_q)), "")
              << trace << " role " << static_cast<int>(role) << " " << t.name() << " "
              << to_text(c.problem()) << " " << config.to_text();
        }
    if (config.to_text().find("ordered=0") == std::string::npos) {
      EXPECT_TRUE(again == found) << trace << ": two runs of " << t.name()
                                  << " differ: " << to_text(c.problem()) << " " << config.to_text();
    }
  }

  // Runs each problem with parts of heads in every family that has them. dK and dV have the same
  // bits in every run, in whatever order blocks add to dq.
  void expect_parts(const std::vector<std::string>& texts) {
    open_families();
    if (!device_ || IsSkipped()) return;
    int launches = 0, split = 0;
    for (const std::string& text : texts)
      for (const char* asked : {"", ",deterministic=1"}) {
        const Problem p = parse_problem("op=attention_backward,dtype=bf16," + text + asked);
        const BackwardCase c(device_, p, 29, {.dlse = true});
        for (const KernelTemplate* t : families_for(p)) {
          Config config = default_of(*t, p);
          if (!config.has("split_heads")) continue;
          config.set("split_heads", 1);
          ASSERT_EQ(c.fault(*t, config), "") << to_text(p) << " " << config.to_text();
          expect_reference(c, *t, config, "parts");
          const GradientTensors one = c.run(*t, config), other = c.run(*t, config);
          for (const Role role : {Role::kDk, Role::kDv})
            if (one.has(role)) {
              EXPECT_TRUE(one.of(role) == other.of(role)) << to_text(p) << " " << config.to_text();
            }
          const LaunchPlan plan = t->launch(spec_of(p), config, shape_of(p), device_->facts());
          ++launches, split += plan.workspace.back().heads > p.num_heads_kv;
        }
      }
    if (launches > 0) {
      EXPECT_GT(split, launches / 2);
    }
  }

  std::vector<const KernelTemplate*> families_;
};

TEST_F(Cuda, EveryKernelGivesTheGradientsOfTheReference) {
  open_families();
  if (!device_ || IsSkipped()) return;
  const int first = from_environment("ATTUNE_NUMERICS_SEED", 1);
  const int specs = from_environment("ATTUNE_NUMERICS_SPECS", 12);
  for (int seed = first; seed < first + specs && !HasFailure(); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const Problem p = random_backward(random);
    const uint64_t values = random();
    const bool heads_first = random() % 2 == 0, dlse = random() % 2 == 0;
    const BackwardCase c(device_, p, values,
                         {.heads_first = heads_first, .dlse = dlse || sees_one_key(p)});
    for (const KernelTemplate* t : families_for(p)) {
      expect_reference(c, *t, default_of(*t, p), fmt::format("seed {}", seed));
      const std::vector<Config> all =
          t->space(spec_of(p), arch_for(*device_, *t, spec_of(p))).enumerate();
      const Config drawn = all[random() % all.size()];
      if (c.fault(*t, drawn).empty())  // the tuner never runs it
        expect_reference(c, *t, drawn, fmt::format("seed {}, drawn", seed));
    }
  }
}

// Lengths at which blocks take many steps and devices many blocks.
TEST_F(Cuda, LongSequencesGiveTheGradientsOfTheReference) {
  open_families();
  if (!device_ || IsSkipped()) return;
  for (const char* text :
       {"head_dim=128,heads=8/2,seqlen=1500,mask=causal_bottom_right",
        "head_dim=64,heads=4,seqlen=2100",
        "head_dim=256,heads=4/2,seqlen_q=1000,seqlen_kv=1300,mask=causal_top_left",
        "head_dim=64,heads=16/4,seqlen=1100,mask=causal_bottom_right,window=100:0"}) {
    for (const char* asked : {"", ",deterministic=1"}) {
      const Problem p =
          parse_problem(std::string("op=attention_backward,batch=2,dtype=bf16,") + text + asked);
      const BackwardCase c(device_, p, 7);
      for (const KernelTemplate* t : families_for(p))
        expect_reference(c, *t, default_of(*t, p), "long");
    }
  }
}

// Each kind of step of the kernel that adds to dq in any order: lengths that end within a step and
// within a key tile, tiles that no row sees, several tiles per block.
TEST_F(Cuda, UnorderedKernelsGiveTheGradientsOfTheReference) {
  open_families();
  if (!device_ || IsSkipped()) return;
  for (const KernelTemplate* t : families_) {
    if (t->name() != "backward_sm90_one_kernel") continue;
    for (const auto& [dims, rows] : {std::pair{"head_dim=128", 64},
                                     {"head_dim=128", 80},
                                     {"head_dim=64", 128},
                                     {"head_dim=96", 80},
                                     {"head_dim_qk=80,head_dim_v=64", 96},
                                     {"head_dim_qk=16,head_dim_v=48", 128}})
      for (const char* rest : {"heads=4/2,seqlen_q=1337,seqlen_kv=1500,mask=none",
                               "heads=6,seqlen_q=2000,seqlen_kv=100,mask=none",
                               "heads=48/16,seqlen=700,mask=causal_bottom_right",
                               "heads=3,seqlen_q=33,seqlen_kv=900,mask=causal_top_left",
                               "heads=4/1,seqlen=1100,mask=none,window=200:70"}) {
        const BackwardCase c(device_,
                             parse_problem(fmt::format(
                                 "op=attention_backward,batch=2,dtype=bf16,{},{}", dims, rest)),
                             13);
        for (const int scheduler : {0, 2})
          expect_reference(c, *t,
                           parse_config(fmt::format("key_block_m={},q_slots=2,dout_slots=2,"
                                                    "section_heads=4,scheduler={},ordered=0",
                                                    rows, scheduler)),
                           "no order");
      }
  }
}

// Blocks of keys that take a part of a group's heads (split_heads 1): odd ratios, parts of unequal
// sizes, tiles that no row sees, lengths that end within a tile, dK and dV in kernels of their own.
TEST_F(Cuda, PartsOfWideHeadsGiveTheGradientsOfTheReference) {
  expect_parts({"head_dim=128,heads=4/2,batch=1,seqlen_q=1337,seqlen_kv=1500,mask=none",
                "head_dim=128,heads=32/1,batch=2,seqlen=700,mask=causal_bottom_right",
                "head_dim=128,heads=14/2,batch=1,seqlen=1,mask=none",
                "head_dim=128,heads=28/4,batch=2,seqlen=500,mask=none,dropout=0.25"});
}
TEST_F(Cuda, PartsOfNarrowHeadsGiveTheGradientsOfTheReference) {
  expect_parts({"head_dim=64,heads=71/1,batch=1,seqlen=300,mask=causal_bottom_right",
                "head_dim=64,heads=14/2,batch=2,seqlen=1100,mask=none,window=200:70",
                "head_dim=64,heads=8/2,batch=3,seqlen_q=33,seqlen_kv=900,mask=causal_top_left",
                "head_dim=64,heads=32/1,batch=1,seqlen=600,mask=causal_bottom_right,window=90:0"});
}
TEST_F(Cuda, PartsOfOtherHeadsGiveTheGradientsOfTheReference) {
  expect_parts({"head_dim=96,heads=28/4,batch=1,seqlen=500,mask=causal_bottom_right",
                "head_dim=72,heads=7/1,batch=2,seqlen_q=200,seqlen_kv=17,mask=none,gradients=kv",
                "head_dim=256,heads=32/1,batch=1,seqlen=400,mask=causal_bottom_right",
                "head_dim=256,heads=4/2,batch=2,seqlen=300,mask=none,gradients=v",
                "head_dim_qk=192,head_dim_v=128,heads=7/1,batch=1,seqlen=300,mask=none"});
}

// attune_kernel leaves dS and P in the workspace for kernels of dK and dV: steps that end within 64
// keys, blocks of rows that see little or nothing, more heads than a round has.
TEST_F(Cuda, KernelsThatStoreScoresGiveTheGradientsOfTheReference) {
  open_families();
  if (!device_ || IsSkipped()) return;
  for (const KernelTemplate* t : families_) {
    if (t->name() != "backward_sm90_stored") continue;
    for (const auto& [dims, tiles, rest] :
         {std::tuple{"head_dim=256", "block_m=128,block_n=48,key_block_n=128",
                     "heads=4/2,seqlen_q=1337,seqlen_kv=1500,mask=none"},
          {"head_dim=256", "block_m=128,block_n=48,key_block_n=64",
           "heads=4/1,seqlen=1100,mask=none,window=200:70"},
          {"head_dim=256", "block_m=128,block_n=32,key_block_n=128",
           "heads=48/16,seqlen=300,mask=causal_bottom_right,dropout=0.25"},
          {"head_dim=256", "block_m=64,block_n=64,key_block_n=128", "heads=2,seqlen=1,mask=none"},
          {"head_dim_qk=192,head_dim_v=128", "block_m=128,block_n=64,key_block_n=192",
           "heads=6,seqlen_q=400,seqlen_kv=100,mask=causal_bottom_right"},
          {"head_dim_qk=192,head_dim_v=128", "block_m=128,block_n=80,key_block_n=128",
           "heads=4/2,seqlen=700,mask=causal_bottom_right,window=5:0,gradients=qk"},
          {"head_dim_qk=40,head_dim_v=256", "block_m=64,block_n=80,key_block_n=128",
           "heads=3,seqlen_q=33,seqlen_kv=900,mask=causal_top_left"},
          {"head_dim=64", "block_m=192,block_n=80,key_block_n=192",
           "heads=5,seqlen_q=900,seqlen_kv=333,mask=causal_top_left,window=90:-"}}) {
      const Problem p =
          parse_problem(fmt::format("op=attention_backward,batch=2,dtype=bf16,{},{}", dims, rest));
      const BackwardCase c(device_, p, 17, {.dlse = sees_one_key(p)});
      Config config = parse_config(kStored);
      const Config other = parse_config(tiles);
      for (const auto& [knob, value] : other.knobs()) config.set(knob, value);
      ASSERT_EQ(c.fault(*t, config), "") << to_text(p);
      expect_reference(c, *t, config, "stored");
    }
    const BackwardCase many(
        device_,
        parse_problem("op=attention_backward,batch=2,dtype=bf16,head_dim=192,heads=22,"
                      "seqlen=4096,mask=causal_bottom_right"),
        19);
    expect_reference(many, *t, default_of(*t, many.problem()), "rounds");
  }
}

// The kernel that walks along a narrow band: runs that begin and end within a head, keys before the
// first and after the last row's, rows that see no key, key tiles that begin between whole tiles.
TEST_F(Cuda, WalksAlongABandGiveTheGradientsOfTheReference) {
  open_families();
  if (!device_ || IsSkipped()) return;
  for (const KernelTemplate* t : families_) {
    if (t->name() != "backward_sm90_band") continue;
    for (const auto& [dims, rest] :
         {std::pair{"head_dim=64", "heads=32,seqlen=3000,mask=causal_bottom_right,window=127:0"},
          {"head_dim=64", "heads=3,seqlen=1100,mask=none,window=64:64"},
          {"head_dim=64", "heads=2,seqlen=1000,mask=causal_top_left,window=128:-"},
          {"head_dim=64",
           "heads=5,seqlen_q=777,seqlen_kv=1225,mask=causal_bottom_right,window=90:0"},
          {"head_dim=64", "heads=6,seqlen_q=1234,seqlen_kv=814,mask=none,window=70:10"},
          {"head_dim=64", "heads=4,seqlen_q=1,seqlen_kv=890,mask=causal_bottom_right,window=70:0"},
          {"head_dim=64", "heads=4,seqlen_q=900,seqlen_kv=1,mask=none,window=3:40"},
          {"head_dim_qk=40,head_dim_v=56", "heads=7,seqlen=500,mask=none,window=0:128"},
          {"head_dim_qk=16,head_dim_v=64", "heads=3,seqlen=65,mask=none,window=1:0"}}) {
      const Problem p =
          parse_problem(fmt::format("op=attention_backward,batch=2,dtype=bf16,{},{}", dims, rest));
      const BackwardCase c(device_, p, 23, {.dlse = true});
      expect_reference(c, *t, Config{}, "band");
    }
  }
}

// Gradients after the forward's dropout: rows and keys of odd numbers, groups, windows, each
// gradient alone.
TEST_F(Cuda, DropoutGivesTheGradientsOfTheReference) {
  open_families();
  if (!device_ || IsSkipped()) return;
  for (const char* text :
       {"head_dim=64,heads=4/2,seqlen=500,dropout=0.1",
        "head_dim=128,heads=4/1,seqlen_q=239,seqlen_kv=511,mask=causal_bottom_right,dropout=0.5",
        "head_dim=96,heads=2,seqlen=333,mask=causal_top_left,window=70:0,dropout=0.25",
        "head_dim=256,heads=2,seqlen_q=130,seqlen_kv=300,dropout=0.25,gradients=kv",
        "head_dim=40,heads=2,seqlen=257,dropout=0.25,gradients=q",
        "head_dim=128,heads=2,seqlen=300,dropout=0.9,gradients=v"}) {
    const Problem p = parse_problem(
        std::string("op=attention_backward,deterministic=1,batch=2,dtype=bf16,") + text);
    const BackwardCase c(device_, p, 11, {.dlse = true});
    for (const KernelTemplate* t : families_for(p)) {
      expect_reference(c, *t, default_of(*t, p), "dropout");
      const std::vector<Config> all =
          t->space(spec_of(p), arch_for(*device_, *t, spec_of(p))).enumerate();
      const Config other = all[all.size() / 2];
      if (c.fault(*t, other).empty()) expect_reference(c, *t, other, "dropout, another config");
    }
  }
}

// sum_j dV_j = sum_i dout_i over rows that see a key, since each row of P sums to 1; <Q, dQ> = <K,
// dK>, since both are <S, dS>.
TEST_F(Cuda, SumsOfGradientsKeepTheirLaws) {
  open_families();
  if (!device_ || IsSkipped()) return;
  for (const char* text :
       {"head_dim=128,heads=4/2,seqlen=300,mask=causal_bottom_right",
        "head_dim=64,heads=2,seqlen_q=500,seqlen_kv=100,mask=causal_bottom_right",
        "head_dim=256,heads=2,seqlen_q=130,seqlen_kv=700,window=50:20"}) {
    const Problem p =
        parse_problem(std::string("op=attention_backward,batch=2,dtype=bf16,") + text);
    const BackwardCase c(device_, p, 3);
    for (const KernelTemplate* t : families_for(p)) {
      const GradientTensors found = run(*t, c);
      EXPECT_EQ(c.sum_of_dv_fault(found), "") << t->name() << " " << text;
      EXPECT_EQ(c.inner_product_fault(found), "") << t->name() << " " << text;
    }
  }
}

// Without dout, dS is P times the gradient of lse.
TEST_F(Cuda, TheGradientOfLseAloneGivesThoseOfQAndK) {
  open_families();
  if (!device_ || IsSkipped()) return;
  for (const char* text : {"head_dim=128,heads=4/2,seqlen=300,mask=causal_bottom_right",
                           "head_dim=64,heads=2,seqlen_q=77,seqlen_kv=400"}) {
    const Problem p =
        parse_problem(std::string("op=attention_backward,batch=2,dtype=bf16,") + text);
    const BackwardCase c(device_, p, 5, {.dlse = true, .no_dout = true});
    for (const KernelTemplate* t : families_for(p)) {
      expect_reference(c, *t, default_of(*t, p), "dlse alone");
      const GradientTensors found = run(*t, c);
      for (const float value : found.of(Role::kDv).values) ASSERT_EQ(value, 0.F) << t->name();
    }
  }
}

// Rows that see no key, and keys that no row sees, have a gradient of 0, which is written over NaN.
TEST_F(Cuda, InvisibleRowsAndKeysHaveZeroGradients) {
  open_families();
  if (!device_ || IsSkipped()) return;
  const Problem rows = parse_problem(
      "op=attention_backward,dtype=bf16,head_dim=64,heads=2,seqlen_q=300,seqlen_kv=40,"
      "mask=causal_bottom_right");
  const Problem keys = parse_problem(
      "op=attention_backward,dtype=bf16,head_dim=64,heads=2,seqlen_q=40,seqlen_kv=300,"
      "mask=causal_top_left");
  const BackwardCase rows_case(device_, rows, 1), keys_case(device_, keys, 1);
  for (const KernelTemplate* t : families_for(rows)) {
    const GradientTensors of_rows = run(*t, rows_case), of_keys = run(*t, keys_case);
    EXPECT_TRUE(all_zero(of_rows.of(Role::kDq), 0, 260)) << t->name();
    EXPECT_TRUE(all_zero(of_keys.of(Role::kDk), 40, 300)) << t->name();
    EXPECT_TRUE(all_zero(of_keys.of(Role::kDv), 40, 300)) << t->name();
  }
}

}  // namespace
}  // namespace attune::testing
