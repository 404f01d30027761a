// SPDX-License-Identifier: Apache-2.0
// Tests the CPU kernels without a Device: configs of the space, registers narrower than this
// machine's, thread counts, lengths around the tiles, and the oracle's own numerics.
// numerics_test.cpp tests random specs on the real device.
//   ATTUNE_FULL_SPACE=1   every config of the space for each spec (default: every 24th)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "generator/families/families.hpp"
#include "tests/support/host_run.hpp"

namespace attune::testing {
namespace {

class PrefillCpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    toolchain_ = compiling_toolchain(&why);
    if (toolchain_ == nullptr) GTEST_SKIP() << why;
    arch_ = toolchain_->host_arch();
  }

  void check(const HostConfig& host, const Problem& problem, Layout layout, int threads,
             const std::string& trace) {
    const AttentionCase test_case(problem, layout, Inputs::kNormal, 7);
    const HostOutcome outcome = host.run(test_case, threads);
    const std::string broken = verdict(test_case, outcome.result, Arithmetic::kFp32);
    EXPECT_TRUE(broken.empty()) << trace << " " << to_text(problem) << ": " << broken;
    EXPECT_TRUE(outcome.gaps_intact) << trace << " " << to_text(problem) << ": wrote outside o";
    EXPECT_TRUE(outcome.counters_clear)
        << trace << " " << to_text(problem) << ": left its counters set";
  }

  void check_space(const std::string& text) {
    const Problem problem = parse_problem(text);
    const std::vector<Config> configs = prefill_cpu().space(spec_of(problem), arch_).enumerate();
    const size_t step = std::getenv("ATTUNE_FULL_SPACE") != nullptr ? 1 : 24;
    for (size_t i = text.size() % step; i < configs.size() && !HasFailure(); i += step) {
      const HostConfig host(*toolchain_, arch_, prefill_cpu(), spec_of(problem), configs[i]);
      check(host, problem, Layout::kPadded, 2, configs[i].to_text());
    }
  }

  // Checks the default config and the oracle template on an arch with fewer features than this one.
  void check_narrow(int vector_bytes, const std::vector<std::string>& features) {
#if !defined(__x86_64__)
    GTEST_SKIP() << "names x86 features";
#endif
    Arch arch = arch_;
    arch.vector_bytes = vector_bytes;
    arch.features = features;
    for (const char* text : {"dtype=fp32,head_dim=64,heads=2,seqlen=150,mask=causal_bottom_right",
                             "dtype=fp16,head_dim_qk=72,head_dim_v=40,heads=6/"
                             "2,seqlen_q=45,seqlen_kv=301,window=80:20",
                             "dtype=bf16,head_dim=128,heads=7/1,seqlen=70,mask=causal_top_left",
                             "dtype=e4m3,dtype_o=fp32,head_dim=72,heads=4/2,seqlen_q=45,seqlen_kv="
                             "131,scale_block=16,v_layout=transposed",
                             "dtype=e4m3,dtype_kv=e5m2,head_dim=128,heads=3,seqlen=70,mask=causal_"
                             "top_left"}) {
      const Problem problem = parse_problem(text);
      const Config config = prefill_cpu().default_config(spec_of(problem), arch, shape_of(problem),
                                                         typical_device(arch).facts);
      check(HostConfig(*toolchain_, arch, prefill_cpu(), spec_of(problem), config), problem,
            Layout::kContiguous, 2, config.to_text());
      check(HostConfig(*toolchain_, arch, reference_cpu(), spec_of(problem), Config()), problem,
            Layout::kContiguous, 2, "reference");
    }
  }

  const CpuToolchain* toolchain_ = nullptr;
  Arch arch_;
};

TEST_F(PrefillCpu, EveryConfigIsRightInFp32) {
  check_space(
      "dtype=fp32,head_dim_qk=64,head_dim_v=72,heads=6/"
      "2,seqlen_q=131,seqlen_kv=290,mask=causal_bottom_right");
}

TEST_F(PrefillCpu, EveryConfigIsRightInBf16) {
  check_space(
      "dtype=bf16,head_dim_qk=40,head_dim_v=16,heads=5/1,seqlen_q=67,seqlen_kv=300,window=100:30");
}

TEST_F(PrefillCpu, EveryConfigIsRightInFp16) {
  check_space("dtype=fp16,head_dim=80,heads=3,seqlen_q=200,seqlen_kv=259");
}

TEST_F(PrefillCpu, EveryConfigIsRightIn8Bits) {
  check_space(
      "dtype=e4m3,dtype_o=fp32,head_dim_qk=72,head_dim_v=40,heads=6/2,seqlen_q=131,seqlen_kv=290,"
      "mask=causal_bottom_right,scale_block_q=16,scale_block_kv=48");
  check_space(
      "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=64,heads=3,seqlen_q=200,seqlen_kv=259,"
      "v_layout=transposed,accuracy=fast");
}

// Tests any factors, layouts and inputs. Output is fp32, so that rounding hides no error.
TEST_F(PrefillCpu, EightBitsOfAnySizeKeepTheRule) {
  for (const char* text :
       {"dtype=e4m3,dtype_o=fp32,head_dim=64,heads=4/2,seqlen_q=40,seqlen_kv=300,"
        "scale_block_q=16,scale_block_kv=64",
        "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp32,head_dim=24,heads=2,seqlen_q=40,"
        "seqlen_kv=75,v_layout=transposed,scale_block=16"}) {
    const Problem problem = parse_problem(text);
    const HostConfig prefill(
        *toolchain_, arch_, prefill_cpu(), spec_of(problem),
        prefill_cpu().default_config(spec_of(problem), arch_, shape_of(problem),
                                     typical_device(arch_).facts));
    const HostConfig reference(*toolchain_, arch_, reference_cpu(), spec_of(problem), Config());
    for (uint64_t seed = 0; seed < 24; ++seed) {
      const AttentionCase test_case(problem, static_cast<Layout>(seed % 3),
                                    static_cast<Inputs>(seed % 8), seed);
      for (const HostConfig* host : {&prefill, &reference})
        EXPECT_EQ(verdict(test_case, host->run(test_case, 2).result, Arithmetic::kFp32), "")
            << text << " seed " << seed << (host == &reference ? " reference" : "");
    }
  }
}

// NaN factors reach the rows that see them and no others. Infinite factors also reach no others,
// but may make a weight of 0. A factor of 0 gives zeros.
TEST_F(PrefillCpu, OddFactorsStayWhereTheyBelong) {
  const Problem problem = parse_problem(
      "dtype=e4m3,dtype_o=fp32,head_dim=32,heads=4/2,seqlen=100,mask=causal_bottom_right,"
      "scale_block=16");
  const HostConfig prefill(*toolchain_, arch_, prefill_cpu(), spec_of(problem),
                           prefill_cpu().default_config(spec_of(problem), arch_, shape_of(problem),
                                                        typical_device(arch_).facts));
  const HostConfig reference(*toolchain_, arch_, reference_cpu(), spec_of(problem), Config());
  const auto with = [&](HostScale AttentionCase::*scale, float factor) {
    AttentionCase test_case(problem, Layout::kContiguous, Inputs::kNormal, 3);
    (test_case.*scale) = {std::vector<float>(14, 0.01F), 14, 7, 1, 1, 16};
    if (scale == &AttentionCase::q_scale) (test_case.*scale).heads_per_scale = 2;
    (test_case.*scale).values[7 + 3] = factor;  // rows 48 to 63 of the second K/V head
    return test_case;
  };
  for (const HostConfig* host : {&prefill, &reference}) {
    for (const float factor : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      for (const auto scale : {&AttentionCase::q_scale, &AttentionCase::k_scale}) {
        const AttentionResult got = host->run(with(scale, factor), 2).result;
        for (int64_t row = 0; row < 100; ++row)
          for (int64_t head = 0; head < 4; ++head) {
            const bool hit =
                head >= 2 && row >= 48 && (scale == &AttentionCase::k_scale || row < 64);
            const double value = got.o[static_cast<size_t>((row * 4 + head) * 32 + 5)];
            if (!hit || std::isnan(factor)) {
              EXPECT_EQ(std::isfinite(value), !hit) << row << " " << head;
            }
          }
      }
    }
    for (const auto scale :
         {&AttentionCase::q_scale, &AttentionCase::k_scale, &AttentionCase::v_scale}) {
      const AttentionCase zero = with(scale, 0);
      EXPECT_EQ(verdict(zero, host->run(zero, 2).result, Arithmetic::kFp32), "");
    }
  }
}

TEST_F(PrefillCpu, Avx2RegistersGiveTheSame) {
  check_narrow(32, {"+avx", "+avx2", "+f16c", "+fma", "+sse4.2"});
}

TEST_F(PrefillCpu, PlainX86GivesTheSame) { check_narrow(16, {"+sse2"}); }

TEST_F(PrefillCpu, LengthsAroundTilesAndAnyNumberOfThreads) {
  const Problem base = parse_problem(
      "dtype=fp32,head_dim=32,heads=4/2,batch=2,seqlen=64,mask=causal_bottom_right,window=150:-");
  Config config = prefill_cpu().default_config(spec_of(base), arch_, shape_of(base),
                                               typical_device(arch_).facts);
  for (const int64_t schedule : {0, 1}) {
    config.set("schedule", schedule);
    config.set("block_n", 128);
    const HostConfig host(*toolchain_, arch_, prefill_cpu(), spec_of(base), config);
    const int64_t tile = config.at("block_m") / 2;  // query positions: two heads share a tile
    for (const int64_t seqlen_q : {int64_t{0}, int64_t{1}, tile - 1, tile, tile + 1}) {
      for (const int64_t seqlen_kv : {0, 1, 3, 127, 128, 129, 300}) {
        Problem problem = base;
        problem.seqlen_q = seqlen_q;
        problem.seqlen_kv = seqlen_kv;
        check(host, problem, Layout::kHeadsFirst, 1 + static_cast<int>((seqlen_q + seqlen_kv) % 5),
              config.to_text());
      }
    }
  }
}

TEST_F(PrefillCpu, ScoresOfAnySizeKeepTheRule) {
  const Problem problem = parse_problem("dtype=fp32,head_dim=64,heads=2,seqlen_q=40,seqlen_kv=300");
  const HostConfig host(*toolchain_, arch_, prefill_cpu(), spec_of(problem),
                        prefill_cpu().default_config(spec_of(problem), arch_, shape_of(problem),
                                                     typical_device(arch_).facts));
  for (const Inputs inputs : {Inputs::kLogitsTimes16, Inputs::kLogitsTimes64, Inputs::kAllNegative,
                              Inputs::kOutlierRow}) {
    const AttentionCase test_case(problem, Layout::kContiguous, inputs, 3);
    EXPECT_EQ(verdict(test_case, host.run(test_case, 2).result), "");
  }
}

TEST_F(PrefillCpu, NanInAVisibleKeyReachesTheOutput) {
  const Problem problem =
      parse_problem("dtype=fp32,head_dim=64,heads=1,seqlen=100,mask=causal_bottom_right");
  const HostConfig host(*toolchain_, arch_, prefill_cpu(), spec_of(problem),
                        prefill_cpu().default_config(spec_of(problem), arch_, shape_of(problem),
                                                     typical_device(arch_).facts));
  AttentionCase test_case(problem, Layout::kContiguous, Inputs::kNormal, 3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(test_case.k.bytes.data() + 60 * test_case.k.row_stride * 4, &nan, 4);
  const AttentionResult result = host.run(test_case, 1).result;
  EXPECT_FALSE(std::isnan(result.o[static_cast<size_t>(59 * 64)]));
  EXPECT_TRUE(std::isnan(result.o[static_cast<size_t>(60 * 64)]));
  EXPECT_TRUE(std::isnan(result.o[static_cast<size_t>(99 * 64)]));
}

// Documents end anywhere in a block. Rows of a document, even in whole panels, must not multiply
// keys of others. A product would show, since 0 times NaN is NaN.
TEST_F(PrefillCpu, KeysOfOtherDocumentsAreNotComputed) {
  for (const char* text : {"dtype=fp32,head_dim=64,heads=1,seqlen=300,documents=1",
                           "dtype=bf16,head_dim=64,heads=2/1,seqlen=300,documents=1"}) {
    const Problem problem = parse_problem(text);
    AttentionCase test_case(problem, Layout::kContiguous, Inputs::kNormal, 3);
    for (HostCapture& ids : test_case.captures) {
      ids.strides = {300, 1};
      ids.bytes.resize(300 * sizeof(int32_t));
      for (int32_t row = 0; row < 300; ++row) {
        const int32_t id = row < 37 ? 0 : row < 203 ? 1 : 2;
        std::memcpy(ids.bytes.data() + static_cast<size_t>(row) * sizeof(id), &id, sizeof(id));
      }
    }
    for (int64_t key = 0; key < 300; ++key)
      if (key < 37 || key >= 203) test_case.v.set(0, key, 0, 5, std::nanf(""));
    const HostConfig host(*toolchain_, arch_, prefill_cpu(), spec_of(problem),
                          prefill_cpu().default_config(spec_of(problem), arch_, shape_of(problem),
                                                       typical_device(arch_).facts));
    const AttentionResult result = host.run(test_case, 1).result;
    const auto row_size = static_cast<size_t>(problem.num_heads_q * 64);
    for (size_t i = 64 * row_size; i < 128 * row_size; ++i)
      ASSERT_TRUE(std::isfinite(result.o[i])) << text << " row " << i / row_size;
  }
}

TEST_F(PrefillCpu, SpaceHasTheSizeThatTuningNeeds) {
  for (const char* dtype : {"fp32", "bf16", "e4m3"}) {
    const KernelSpec spec =
        spec_of(parse_problem(std::string("head_dim=64,heads=1,seqlen=64,dtype=") + dtype));
    for (const int vector_bytes : {16, 32, 64}) {
      Arch arch = arch_;
      arch.vector_bytes = vector_bytes;
      arch.features = {"+avx2", "+fma"};
      const SearchSpace space = prefill_cpu().space(spec, arch);
      const size_t size = space.enumerate().size();
      EXPECT_GE(size, 24U) << dtype << " " << vector_bytes;
      EXPECT_LE(size, 400U) << dtype << " " << vector_bytes;
      for (const int64_t seqlen : {1, 30, 100, 1000, 100000})
        EXPECT_EQ(space.broken(prefill_cpu().default_config(
                      spec, arch, Shape{1, seqlen, seqlen, 8, 8}, typical_device(arch).facts)),
                  std::nullopt)
            << vector_bytes;
    }
  }
}

TEST_F(PrefillCpu, IllegalConfigsAndSpecsAreRefusedInASentence) {
  const KernelSpec spec = spec_of(parse_problem("dtype=bf16,head_dim=64,heads=1,seqlen=64"));
  Config good = prefill_cpu().default_config(spec, arch_, Shape{1, 64, 64, 1, 1},
                                             typical_device(arch_).facts);
  good.set("vectors", 2);  // 12 rows are for tiles of one vector
  const auto broken = [&](const char* knob, int64_t value) {
    Config config = good;
    config.set(knob, value);
    return prefill_cpu().space(spec, arch_).broken(config).value_or("");
  };
  EXPECT_THAT(broken("rows", 12), ::testing::HasSubstr("rows"));
  EXPECT_THAT(broken("pack_kv", 0), ::testing::HasSubstr("pack_kv is 0"));
  EXPECT_THAT(broken("block_n", 100), ::testing::HasSubstr("block_n is 100; must be"));
  KernelSpec wide = spec;
  wide.head_dim_v = 520;
  EXPECT_THAT(prefill_cpu().refuses(wide, arch_).value_or(""),
              ::testing::HasSubstr("head_dim_v is 520"));
  EXPECT_THAT(prefill_cpu().refuses(spec, parse_arch("sm_90")).value_or(""),
              ::testing::HasSubstr("sm_90"));
  KernelSpec mixed = spec;
  mixed.dtype_kv = Dtype::kE4m3;
  EXPECT_THAT(prefill_cpu().refuses(mixed, arch_).value_or(""),
              ::testing::HasSubstr("dtype_q is bf16 and dtype_kv is e4m3"));
  const KernelSpec quantise =
      spec_of(parse_problem("op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=1,seqlen=64"));
  for (const KernelTemplate* t : {&prefill_cpu(), &reference_cpu()})
    EXPECT_THAT(t->refuses(quantise, arch_).value_or(""), ::testing::HasSubstr("op is quantise"));
}

}  // namespace
}  // namespace attune::testing
