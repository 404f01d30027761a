// SPDX-License-Identifier: Apache-2.0
// Compares gradients of tensors that score features read (biases, slopes, sinks, loads of programs)
// with the float64 oracle (tuner/oracles/score_gradient.cpp). Also gradients of q, k and v under
// programs that give NaN for rows past the last. Every family on every device here runs its default
// config and a random one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "generator/score/language/user_program.hpp"
#include "tests/templates/numerics/device_fixture.hpp"
#include "tuner/fuzz/device_run.hpp"
#include "tuner/measure/device_backend.hpp"

namespace attune::testing {
namespace {

struct Row {
  const char* problem;
  const char* program = nullptr;  // of score_mod
};

constexpr const char* kTable =
    "// capture table: fp32[2]\nreturn score * table[head][q_idx - kv_idx + 300];";
constexpr const char* kKeys =
    "// capture keys: bf16[1]\nreturn score + score * keys[kv_idx] / (2.0f + abs(score));";
constexpr const char* kScale = "// capture scale: fp32[1]\nreturn score * scale[head];";
constexpr const char* kBias = "// capture bias: fp16[3]\nreturn score + bias[head][q_idx][kv_idx];";
constexpr const char* kTwo =
    "// capture a: fp32[1]\n// capture b: fp32[2]\n// capture ids: int32[1]\n"
    "return kv_idx < 40 ? score * a[ids[q_idx]] : score - b[batch][kv_idx] * a[kv_idx];";

// For rows past the last, these programs take roots of negative numbers, which are NaN.
constexpr const char* kEnds = "return score - 0.1f * sqrt(float(seqlen_q - 1 - q_idx));";
constexpr const char* kEndsOfKeys =
    "// capture keys: bf16[1]\n"
    "return score + keys[kv_idx] * sqrt(float(seqlen_q - 1 - q_idx));";
constexpr const char* kEndsOfTable =
    "// capture table: fp32[2]\n"
    "return (score + table[head][q_idx - kv_idx + 300]) * sqrt(float(seqlen_q - q_idx));";

constexpr Row kRows[] = {{"bias=bf16,score_gradient=bias"},
                         {"bias=fp32,score_gradient=bias,repeats=bh,mask=causal_bottom_right"},
                         {"bias=bf16,alibi=1,score_gradient=bias,repeats=q"},
                         {"relative_bias=fp32,score_gradient=relative_bias,softcap=20"},
                         {"alibi=1,score_gradient=alibi,repeats=b,window=60:10"},
                         {"sinks=bf16,score_gradient=sinks"},
                         {"score_gradient=load", kKeys},
                         {"score_gradient=load,repeats=bq,softcap=3", kKeys},
                         {"score_gradient=load,repeats=bh,mask=causal_top_left", kBias},
                         {"score_gradient=load,repeats=bq,relative_bias=bf16,dropout=0.2", kScale},
                         {"score_gradient=load_diagonals,mask=causal_bottom_right", kTable},
                         {"score_gradient=load_diagonals,repeats=h,documents=1,bias=bf16", kTable},
                         {"score_gradient=load,load=0,repeats=bh", kTwo},
                         {"score_gradient=load,load=1,repeats=hq,key_lengths=1", kTwo},
                         {"score_gradient=load,load=2,repeats=bhq,sinks=fp32", kTwo},
                         {"gradients=qkv", kEnds},
                         {"gradients=v,mask=causal_bottom_right,softcap=9", kEnds},
                         {"score_gradient=load,repeats=bhq", kEndsOfKeys},
                         {"score_gradient=load_diagonals", kEndsOfTable}};

class ScoreGradient : public DeviceFixture {
 protected:
  Problem problem(const Row& row, Dtype dtype, int head_dim) const {
    std::string program;
    if (row.program != nullptr)
      program = ",score_mod=" +
                to_text(read_user_program(row.program, score::Kind::kScore, "score_mod").digest);
    return parse_problem(
        fmt::format("op=attention_backward,dtype={},head_dim={},heads=4/"
                    "2,batch=2,seqlen_q=77,seqlen_kv=130,{}{}",
                    dtype_name(dtype), head_dim, row.problem, program));
  }

  // Returns false if the tuner would leave out the config because of its image.
  bool check(DeviceBackend* backend, const KernelTemplate& t, const Problem& p,
             const Config& config) const {
    const KernelSpec spec = spec_of(p);
    const Arch arch = arch_for(*device_, t, spec);
    KernelRequest request{std::string(t.name()), config,
                          device_->compiler().compile(render(t, spec, arch, config), arch)};
    if (!t.is_reference() && image_fault(request.image.info)) return false;
    const Prepared made = backend->prepare(1, request);
    EXPECT_FALSE(made.fault) << t.name() << " " << to_text(p) << " " << config.to_text() << ": "
                             << made.fault->reason;
    if (!made.fault) backend->drop(1);
    return true;
  }

  void check_all(const char* target, std::initializer_list<Dtype> dtypes) {
    open(target);
    if (!device_ || IsSkipped()) return;
    DeviceBackend backend(device_);
    std::mt19937_64 random(5);
    for (const Dtype dtype : dtypes)  // the backend keeps operands of one type
      for (const Row& row : kRows) {
        const Problem p = problem(row, dtype, random() % 2 == 0 ? 64 : 40);
        const KernelSpec spec = spec_of(p);
        backend.open({p, 3, std::nullopt, false});
        for (const KernelTemplate* t : asked_templates()) {
          if (!serves(*t, spec)) continue;
          const Arch arch = arch_for(*device_, *t, spec);
          const bool is_made =
              check(&backend, *t, p, t->default_config(spec, arch, shape_of(p), device_->facts()));
          EXPECT_TRUE(is_made || captures_of(p).size() > 1) << t->name() << " " << to_text(p);
          const std::vector<Config> configs = t->space(spec, arch).enumerate();
          check(&backend, *t, p, configs[random() % configs.size()]);
        }
      }
  }
};

TEST_F(ScoreGradient, IsThatOfTheOracleOnTheCpu) {
  check_all("cpu:2", {Dtype::kFp32, Dtype::kBf16});
}

// A spec that uses every part of a thread's work is served, by the smallest tile.
TEST(ScoreGradientSpace, HasATileForASpecOfManyParts) {
  constexpr const char* kText =
      "// capture table: fp32[2]\nreturn tanh(score) * table[head][q_idx - kv_idx + 4096];";
  const UserProgram program = read_user_program(kText, score::Kind::kScore, "score_mod");
  const KernelSpec spec = spec_of(parse_problem(
      "op=attention_backward,dtype=bf16,head_dim=64,heads=2/1,seqlen=512,bias=bf16,documents=1,"
      "score_gradient=load_diagonals,repeats=h,score_mod=" +
      to_text(program.digest)));
  const KernelTemplate& t = template_by_name("score_gradient_sm80");
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"})
    EXPECT_FALSE(t.space(spec, parse_arch(arch)).enumerate().empty()) << arch;
}

// Sums must exclude rows that do not exist, because a program may give NaN for them.
TEST(ScoreGradientSource, DropsRowsThatAreNotThereWhereACallersProgramIs) {
  const KernelTemplate& t = template_by_name("score_gradient_sm80");
  const Arch arch = parse_arch("sm_80");
  const auto drops = [&](const std::string& of) {
    const Problem p =
        parse_problem("op=attention_backward,dtype=bf16,head_dim=64,heads=2,seqlen=300," + of);
    const KernelSpec spec = spec_of(p);
    const Config config = t.default_config(spec, arch, shape_of(p), typical_device(arch).facts);
    return render(t, spec, arch, config).text.find("drop_rows_past_end(dz);") != std::string::npos;
  };
  EXPECT_FALSE(drops("bias=bf16,softcap=20,score_gradient=bias,repeats=q"));
  const UserProgram program = read_user_program(kEndsOfKeys, score::Kind::kScore, "score_mod");
  EXPECT_TRUE(drops("score_gradient=load,repeats=bhq,score_mod=" + to_text(program.digest)));
}

// Without batch entries there are no tiles: their blocks would read operands and write sums that do
// not exist.
TEST(ScoreGradientLaunch, OfNoBatchEntriesMakesNoTiles) {
  for (const char* of :
       {"relative_bias=fp32,score_gradient=relative_bias", "alibi=1,score_gradient=alibi"}) {
    Problem p = parse_problem(
        std::string("op=attention_backward,dtype=bf16,head_dim=64,heads=2,seqlen=300,") + of);
    const KernelTemplate& t = template_by_name("score_gradient_sm80");
    const KernelSpec spec = spec_of(p);
    const Arch arch = parse_arch("sm_90a");
    const DeviceFacts facts = typical_device(arch).facts;
    const Config config = t.default_config(spec, arch, shape_of(p), facts);
    for (const int batch : {2, 0}) {
      p.batch = batch;
      const LaunchPlan plan = t.launch(spec, config, shape_of(p), facts);
      ASSERT_EQ(plan.steps.size(), 3u);
      EXPECT_EQ(plan.steps[1].entry, kEntryName);
      EXPECT_EQ(plan.steps[1].grid_x > 0, batch > 0) << of;
      EXPECT_GT(plan.steps[2].grid_x, 0u) << "zeros are written still";
    }
  }
}

TEST_F(ScoreGradient, IsThatOfTheOracleOnTheGpu) {
  check_all("cuda", {Dtype::kBf16, Dtype::kFp16});
}

}  // namespace
}  // namespace attune::testing
