// SPDX-License-Identifier: Apache-2.0
// Op quantise on every device that answers, against the float64 oracle of
// tuner/oracles/quantise.hpp: random specs, layouts, inputs and configs, lengths at the edges of
// blocks; then the corners by hand: zeros, NaN, infinity, tiny and huge values. Suites Cpu.* and
// Cuda.* are separate CTest entries. ATTUNE_NUMERICS_SPECS=N: random specs (default 12).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>

#include "generator/core/system/error.hpp"
#include "runtime/engine/device.hpp"
#include "tests/templates/small/quantise_case.hpp"
#include "tuner/oracles/quantise.hpp"

namespace attune::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
T pick(std::mt19937_64& random, std::initializer_list<T> values) {
  return *(values.begin() + static_cast<long>(random() % values.size()));
}

Problem random_problem(std::mt19937_64& random) {
  const bool rotated = random() % 2 == 0;
  const int dim =
      rotated ? pick(random, {16, 32, 64, 128, 256}) : 8 * static_cast<int>(2 + random() % 31);
  std::string text =
      "op=quantise,dtype=" + pick<std::string>(random, {"bf16", "fp16", "fp32"}) +
      ",dtype_o=" + pick<std::string>(random, {"e4m3", "e5m2"}) +
      ",head_dim=" + std::to_string(dim) +
      ",scale_block=" + std::to_string(pick(random, {0, 0, 16, 48, 64, 128, 256, 1024})) +
      ",seqlen=1,heads=" + std::to_string(1 + random() % 5);  // drawn anew for each run
  if (rotated) text += ",rotation=hadamard";
  if (random() % 2 == 0) text += ",v_layout=transposed";
  return parse_problem(text);
}

int64_t random_length(std::mt19937_64& random, int64_t block) {
  const int64_t step = block > 0 ? block : 64;
  return pick<int64_t>(random, {1, 7, 16, step - 1, step, step + 1, 2 * step + 5,
                                static_cast<int64_t>(1 + random() % 700)});
}

Draw random_draw(std::mt19937_64& random) {
  const uint64_t kind = random() % 4;
  return [&random, kind, normal = std::normal_distribution<float>()](int64_t row, int64_t) mutable {
    const float value = normal(random);
    if (kind == 1) return random() % 1000 == 0 ? value * 10 : value;
    if (kind == 2) return row % 32 < 16 ? 0.0F : value * 1e-3F;
    if (kind == 3) return value * std::exp2(static_cast<float>(row % 24) - 12);
    return value;
  };
}

class Quantise : public ::testing::Test {
 protected:
  void open(const char* target) {
    try {
      device_ = open_device(target);
    } catch (const Error& error) {
      GTEST_SKIP() << "no device here: " << error.what();
    }
  }

  // Returns the template that serves op quantise here, and its arch.
  std::pair<const KernelTemplate*, Arch> server(const KernelSpec& spec) const {
    std::pair<const KernelTemplate*, Arch> found{nullptr, {}};
    for (const Arch& arch : device_->archs())
      for (const KernelTemplate* t : all_templates()) {
        if (t->refuses(spec, arch)) continue;
        EXPECT_EQ(t->name().substr(0, 8), "quantise");
        if (!found.first) found = {t, arch};
      }
    return found;
  }

  void check(const Quantiser& quantiser, QuantiseCase c, const std::string& trace) {
    EXPECT_TRUE(quantiser.run(&c)) << trace << ": two runs differ";
    EXPECT_TRUE(c.gaps_intact()) << trace << ": wrote outside o";
    Operands host{};
    host.q = c.host.q;
    host.o = {c.o.data(), c.host.o.batch_stride, c.host.o.row_stride, c.host.o.head_stride};
    host.o_scale = {c.o_scale.data(), c.host.o_scale.batch_stride, c.host.o_scale.head_stride, 1,
                    1};
    const CheckError error = check_quantised(c.problem, host);
    EXPECT_FALSE(error.wrong) << trace << ": " << *error.wrong;
  }

  void check_random_specs() {
    if (!device_) return;
    const char* asked = std::getenv("ATTUNE_NUMERICS_SPECS");
    const int specs = asked ? std::atoi(asked) : 12;
    for (int seed = 1; seed <= specs && !HasFailure(); ++seed) {
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      const Problem base = random_problem(random);
      const KernelSpec spec = spec_of(base);
      const auto [t, arch] = server(spec);
      ASSERT_NE(t, nullptr);
      const std::vector<Config> configs = t->space(spec, arch).enumerate();
      for (int i = 0; i < 3 && !HasFailure(); ++i) {
        const Config config =
            i == 0 ? t->default_config(spec, arch, {1, 300, 300, 1, 1}, typical_device(arch).facts)
                   : configs[random() % configs.size()];
        const std::string trace =
            "seed " + std::to_string(seed) + " " + to_text(base) + " config " + config.to_text();
        const Quantiser quantiser(device_, *t, arch, spec, config);
        EXPECT_EQ(quantiser.fault(), "") << trace;
        for (int repeat = 0; repeat < 3; ++repeat) {
          Problem p = base;
          p.batch = 1 + static_cast<int64_t>(random() % 2);
          p.seqlen_q = p.seqlen_kv = random_length(random, p.fp8.scale_block_q);
          check(quantiser,
                QuantiseCase(
                    p, pick(random, {Layout::kContiguous, Layout::kHeadsFirst, Layout::kPadded}),
                    random_draw(random)),
                trace);
        }
      }
    }
  }

  // Checks the default config, and one that finds the factor in another way.
  void each_kind(const std::string& text, const Draw& draw,
                 const std::function<void(const QuantiseCase&)>& expect) {
    const Problem p = parse_problem("op=quantise," + text);
    const auto [t, arch] = server(spec_of(p));
    ASSERT_NE(t, nullptr);
    std::vector<Config> configs{
        t->default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts)};
    for (const Config& config : t->space(spec_of(p), arch).enumerate())
      if (config.get("fused", 1) == 0 || config.get("keep", 1) == 0) {
        configs.push_back(config);
        break;
      }
    for (const Config& config : configs) {
      QuantiseCase c(p, Layout::kContiguous, draw);
      Quantiser(device_, *t, arch, spec_of(p), config).run(&c);
      SCOPED_TRACE(text + " config " + config.to_text());
      expect(c);
    }
  }

  void check_plain_corners();
  void check_spoilt_corners();
  void check_rotated_and_extreme_corners();

  std::shared_ptr<const Device> device_;
};

const std::string kBlock = "dtype=bf16,dtype_o=e4m3,head_dim=64,heads=1,seqlen=32,scale_block=16";

void Quantise::check_plain_corners() {
  if (!device_) return;
  each_kind(
      kBlock, [](int64_t, int64_t) { return 0.0F; },
      [](const QuantiseCase& c) {
        EXPECT_EQ(c.o_scale, (std::vector<float>{1, 1}));
        EXPECT_EQ(c.code(3, 5), 0);
      });
  // Powers of two times 448: the factor is exact, and so are the codes. -0 keeps its sign.
  const float row[] = {448,           -448, 1,  -0.5F, 0.001953125F, 0.0009765625F, -0.0F,
                       2.9296875e-3F, 17,   18, 19};
  const auto listed = [&](int64_t, int64_t i) { return i < 11 ? row[i] * 4 : 0.0F; };
  each_kind(kBlock, listed, [](const QuantiseCase& c) {
    EXPECT_EQ(c.o_scale, (std::vector<float>{4, 4}));
    const uint8_t codes[] = {0x7E, 0xFE, 0x38, 0xB0, 0x01, 0x00, 0x80, 0x02, 0x58, 0x59, 0x5A};
    for (int64_t i = 0; i < 11; ++i) EXPECT_EQ(c.code(2, i), codes[i]) << i;
  });
}

// Row 1 has one NaN and both infinities. They affect only their own codes, not the factor.
void Quantise::check_spoilt_corners() {
  if (!device_) return;
  const auto spoilt = [](int64_t r, int64_t i) {
    return r != 1 ? (i == 0 ? 56.0F : 1.0F) : i == 7 ? kNan : i == 8 ? kInf : i == 9 ? -kInf : 1.0F;
  };
  for (const char* dtype : {"bf16", "fp16", "fp32"})
    each_kind(std::string("dtype=") + dtype +
                  ",dtype_o=e4m3,head_dim=64,heads=1,seqlen=32,scale_block=16",
              spoilt, [](const QuantiseCase& c) {
                EXPECT_EQ(c.o_scale, (std::vector<float>{0.125F, 0.125F}));
                EXPECT_EQ(c.code(1, 7) & 0x7F, 0x7F);
                EXPECT_EQ(c.code(1, 8) & 0x7F, 0x7F);  // NaN: e4m3 has no infinity
                EXPECT_EQ(c.code(1, 9) & 0x7F, 0x7F);
                for (int64_t i = 10; i < 64; ++i) EXPECT_EQ(c.code(1, i), 0x50);  // 8
              });
  each_kind("dtype=fp32,dtype_o=e5m2,head_dim=64,heads=1,seqlen=32,scale_block=16", spoilt,
            [](const QuantiseCase& c) {
              EXPECT_EQ(c.o_scale, (std::vector<float>{56.0F / 57344, 56.0F / 57344}));
              EXPECT_GT(c.code(1, 7) & 0x7F, 0x7C);
              EXPECT_EQ(c.code(1, 8), 0x7C);
              EXPECT_EQ(c.code(1, 9), 0xFC);
            });
  // After rotation, an infinity fills its row: no code there is finite, and no other row changes.
  // With -inf or with a second infinity, it may become NaN.
  const auto infinite = [](int64_t r, int64_t i) { return r == 1 && i == 8 ? -kInf : 1.0F; };
  each_kind(
      "dtype=fp32,dtype_o=e5m2,head_dim=64,heads=1,seqlen=32,scale_block=16,rotation=hadamard",
      infinite, [](const QuantiseCase& c) {
        for (int64_t i = 0; i < 64; ++i) {
          EXPECT_GE(c.code(1, i) & 0x7F, 0x7C) << i;
          EXPECT_LT(c.code(0, i) & 0x7F, 0x7C) << i;
        }
      });
  // After rotation, a NaN makes only its own row NaN.
  each_kind(kBlock + ",rotation=hadamard", spoilt, [](const QuantiseCase& c) {
    for (int64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(c.code(1, i) & 0x7F, 0x7F);
      EXPECT_NE(c.code(0, i) & 0x7F, 0x7F);
      EXPECT_NE(c.code(2, i) & 0x7F, 0x7F);
    }
    EXPECT_TRUE(std::isfinite(c.o_scale[0]));
  });
}

void Quantise::check_rotated_and_extreme_corners() {
  if (!device_) return;
  // The rotated unit vector e_3 is +-1/8 in column j, negative where popcount(3 & j) is odd.
  each_kind(
      kBlock + ",rotation=hadamard", [](int64_t, int64_t i) { return i == 3 ? 1.0F : 0.0F; },
      [](const QuantiseCase& c) {
        EXPECT_FLOAT_EQ(c.o_scale[0], 0.125F / 448);
        for (unsigned j = 0; j < 64; ++j)
          EXPECT_EQ(c.code(4, j), std::popcount(3U & j) % 2 == 0 ? 0x7E : 0xFE) << j;
      });
  // Factors are always normal numbers, and smaller values become zero.
  each_kind(
      "dtype=fp32,dtype_o=e4m3,head_dim=64,heads=1,seqlen=16,scale_block=16",
      [](int64_t, int64_t i) { return i == 0   ? 0x1p-120F
                                      : i == 1 ? 0x1p-127F
                                               : 0.0F; },
      [](const QuantiseCase& c) {
        EXPECT_EQ(c.o_scale[0], 0x1p-126F);
        EXPECT_EQ(c.code(0, 0), 0x68);  // 64
        EXPECT_EQ(c.code(0, 1), 0);
      });
  each_kind(
      "dtype=fp32,dtype_o=e4m3,head_dim=64,heads=1,seqlen=16,scale_block=16",
      [](int64_t, int64_t i) { return i == 0 ? 3e38F : 1e38F; },
      [](const QuantiseCase& c) {
        EXPECT_FLOAT_EQ(c.o_scale[0], 3e38F / 448);
        EXPECT_EQ(c.code(0, 0), 0x7E);
        EXPECT_EQ(c.code(0, 1), 0x71);  // 149.3 is nearest to 144
      });
}

class Cpu : public Quantise {};
class Cuda : public Quantise {};

TEST_F(Cpu, RandomSpecsKeepTheRule) {
  open("cpu");
  check_random_specs();
}

TEST_F(Cpu, Corners) {
  open("cpu");
  check_plain_corners();
  check_spoilt_corners();
  check_rotated_and_extreme_corners();
}

// The tuner's check looks at three blocks of a result on a device, including the last one.
TEST_F(Cpu, TheGateFindsAWrongBlock) {
  open("cpu");
  if (!device_) return;
  for (const char* options : {"", ",scale_block=64", ",scale_block=64,v_layout=transposed"}) {
    const Problem p = parse_problem(
        std::string("op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=3,batch=2,seqlen=700") +
        options);
    const auto [t, arch] = server(spec_of(p));
    ASSERT_NE(t, nullptr);
    std::mt19937_64 random(3);
    QuantiseCase c(p, Layout::kContiguous, random_draw(random));
    Quantiser(device_, *t, arch, spec_of(p),
              t->default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts))
        .run(&c);
    EXPECT_FALSE(check_quantised(*device_, p, c.host).wrong) << options;
    uint8_t& code = c.o[static_cast<size_t>(c.o_index(1, 699, 2, 5))];
    code ^= 0x40;
    EXPECT_TRUE(check_quantised(*device_, p, c.host).wrong) << options;
    code ^= 0x40;
    c.o_scale.back() *= 1.0001F;
    EXPECT_TRUE(check_quantised(*device_, p, c.host).wrong) << options;
  }
}

TEST_F(Cuda, RandomSpecsKeepTheRule) {
  open("cuda");
  check_random_specs();
}

TEST_F(Cuda, Corners) {
  open("cuda");
  check_plain_corners();
  check_spoilt_corners();
  check_rotated_and_extreme_corners();
}

// Checks the oracle: its fast rotation equals the matrix's definition, and it finds wrong results.
TEST(Oracle, RotationIsTheMatrix) {
  std::mt19937_64 random(5);
  const QuantiseCase c(
      parse_problem(
          "op=quantise,dtype=fp32,dtype_o=e4m3,head_dim=32,heads=1,seqlen=2,rotation=hadamard"),
      Layout::kContiguous, random_draw(random));
  const auto* q = reinterpret_cast<const float*>(c.q.data());
  const std::vector<double> got = rotated_row(c.problem, c.host, 0, 0, 1);
  for (unsigned j = 0; j < 32; ++j) {
    double want = 0;
    for (unsigned i = 0; i < 32; ++i)
      want += (std::popcount(i & j) % 2 == 0 ? 1 : -1) * static_cast<double>(q[32 + i]) /
              std::sqrt(32.0);
    EXPECT_NEAR(got[j], want, 1e-12);
  }
}

TEST(Oracle, BlamesWrongFactorsAndCodes) {
  QuantiseCase c(parse_problem("op=quantise,dtype=fp32,dtype_o=e4m3,head_dim=16,heads=1,seqlen=16"),
                 Layout::kContiguous,
                 [](int64_t row, int64_t i) { return static_cast<float>(row * 16 + i) - 100; });
  c.o_scale[0] = 155.0F / 448;
  for (int64_t row = 0; row < 16; ++row)
    for (int64_t i = 0; i < 16; ++i)
      c.o[static_cast<size_t>(c.o_index(0, row, 0, i))] =
          to_e4m3((static_cast<float>(row * 16 + i) - 100) / c.o_scale[0]);
  EXPECT_FALSE(check_quantised(c.problem, c.host).wrong);
  uint8_t& code = c.o[static_cast<size_t>(c.o_index(0, 7, 0, 3))];
  code += 2;
  EXPECT_TRUE(check_quantised(c.problem, c.host).wrong) << "two codes off";
  code -= 1;
  EXPECT_FALSE(check_quantised(c.problem, c.host).wrong) << "one code off, once";
  for (uint8_t& each : c.o) each = (each & 0x7F) < 0x7E ? each + 1 : each;
  EXPECT_TRUE(check_quantised(c.problem, c.host).wrong) << "all codes one off";
  c.o_scale[0] *= 1.00001F;
  EXPECT_NE(check_quantised(c.problem, c.host).wrong->find("factor"), std::string::npos);
}

}  // namespace
}  // namespace attune::testing
