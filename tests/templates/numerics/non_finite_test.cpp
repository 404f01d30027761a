// SPDX-License-Identifier: Apache-2.0
// NaN and infinity in operands, for every template on every available device: which rows they
// affect, and the resulting O and LSE. runtime/include/attune/attune.h states the rules. Suites
// Cpu.* and Cuda.* are separate CTest entries.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "tests/templates/numerics/device_fixture.hpp"

namespace attune::testing {
namespace {

const float kNan =
    std::nanf("0x3fffff");  // a payload of all bits: none must be taken for an exponent
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class NonFinite : public DeviceFixture {
 protected:
  // The default config, configs that end tiles in other ways, and a random one.
  std::vector<Config> some_configs(const KernelTemplate& t, const Problem& p) const {
    const KernelSpec spec = spec_of(p);
    const Arch arch = arch_for(*device_, t, spec);
    std::vector<Config> configs = {
        t.default_config(spec, arch, shape_of(p), typical_device(arch).facts)};
    const std::vector<Config> legal = t.space(spec, arch).enumerate();
    for (const auto& [knob, value] :
         {std::pair("o_staging", 0), std::pair("kv_splits", 2), std::pair("row_max", 1)}) {
      const auto found =
          std::find_if(legal.begin(), legal.end(),
                       [&, k = knob, v = value](const Config& c) { return c.get(k, 1 - v) == v; });
      if (found != legal.end()) configs.push_back(*found);
    }
    std::mt19937_64 random(1);
    if (legal.size() > 1) configs.push_back(legal[random() % legal.size()]);
    return configs;
  }

  using Check = std::function<void(const LoadedConfig&, const std::string& trace)>;
  void for_configs(const KernelTemplate& t, const Problem& p, const Check& check) {
    if (!serves(t, spec_of(p))) return;
    for (const Config& config : some_configs(t, p)) {
      std::optional<LoadedConfig> loaded;
      try {
        loaded.emplace(device_, t, spec_of(p), config);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCompile) << error.what();  // ptxas may want registers
        continue;
      }
      if (t.is_reference() || loaded->fault().empty())
        check(*loaded, fmt::format("{} {} {}", t.name(), to_text(p), config.to_text()));
    }
  }

  // One value of the second K/V head is spoilt: the heads of the other keep the rule. NaN must
  // show; an infinite factor may also make weights of 0.
  void check_spoilt(const LoadedConfig& loaded, const Problem& p, Arithmetic arithmetic,
                    const std::string& trace) {
    const AttentionCase clean = clean_case(p);
    const AttentionResult oracle = clean.oracle();
    for (const float value : {kNan, kInfinity, 0.0F})
      for (const auto scale :
           {&AttentionCase::q_scale, &AttentionCase::k_scale, &AttentionCase::v_scale}) {
        AttentionCase spoilt = clean;
        (spoilt.*scale).values.at(static_cast<size_t>((spoilt.*scale).head_stride)) = value;
        const std::string what = fmt::format("{} factor {} of {}", trace, value,
                                             scale == &AttentionCase::q_scale   ? "q"
                                             : scale == &AttentionCase::k_scale ? "k"
                                                                                : "v");
        const AttentionResult got = loaded.run(spoilt).result;
        if (value == 0)
          EXPECT_EQ(verdict(spoilt, got, arithmetic), "") << what;
        else
          expect_other_heads(clean, oracle, got, arithmetic, std::isnan(value), what);
      }
    for (HostOperand AttentionCase::*operand :
         {&AttentionCase::q, &AttentionCase::k, &AttentionCase::v}) {
      AttentionCase spoilt = clean;
      (spoilt.*operand)
          .set(0, 0, operand == &AttentionCase::q ? p.num_heads_q - 1 : p.num_heads_kv - 1, 3,
               kNan);
      expect_other_heads(clean, oracle, loaded.run(spoilt).result, arithmetic, true,
                         trace + " NaN element");
    }
  }

  // Factors of 0.01 for each head and block: of q for the heads of a group together.
  static AttentionCase clean_case(const Problem& p) {
    AttentionCase c(p, Layout::kPadded, Inputs::kNormal, 5);
    for (HostScale AttentionCase::*scale :
         {&AttentionCase::q_scale, &AttentionCase::k_scale, &AttentionCase::v_scale}) {
      const bool of_q = scale == &AttentionCase::q_scale;
      const int64_t block = of_q ? p.fp8.scale_block_q : p.fp8.scale_block_kv;
      const int64_t blocks =
          block > 0 ? ((of_q ? p.seqlen_q : p.seqlen_kv) + block - 1) / block : 1;
      c.*scale = {std::vector<float>(static_cast<size_t>(p.num_heads_kv * blocks), 0.01F),
                  p.num_heads_kv * blocks,
                  blocks,
                  block > 0 ? 1 : 0,
                  of_q ? p.num_heads_q / p.num_heads_kv : 1,
                  block};
    }
    return c;
  }

  // The last half of the heads saw the spoilt value.
  static void expect_other_heads(const AttentionCase& clean, const AttentionResult& oracle,
                                 AttentionResult got, Arithmetic arithmetic, bool shows,
                                 const std::string& trace) {
    const Problem& p = clean.problem;
    const auto dim = static_cast<size_t>(p.head_dim_v), heads = static_cast<size_t>(p.num_heads_q);
    bool finite = true;
    for (size_t i = 0; i < got.o.size(); ++i)
      if (i / dim % heads >= heads / 2) {
        finite = finite && std::isfinite(got.o[i]);
        got.o[i] = oracle.o[i];
      }
    std::copy(oracle.lse.begin() + static_cast<long>(oracle.lse.size() / 2), oracle.lse.end(),
              got.lse.begin() + static_cast<long>(oracle.lse.size() / 2));
    EXPECT_EQ(verdict(clean, got, arithmetic), "") << trace << ": reached other heads";
    EXPECT_FALSE(shows && finite) << trace << ": does not show";
  }

  void check_spoilt_heads() {
    if (!device_) return;
    for (const char* options : {"", ",accuracy=fast,scale_block=64",
                                ",v_layout=transposed,scale_block_kv=16,dtype_kv=e5m2"}) {
      const Problem p =
          parse_problem(std::string("dtype=e4m3,head_dim=64,heads=4/"
                                    "2,seqlen_q=70,seqlen_kv=150,mask=causal_bottom_right") +
                        options);
      for (const KernelTemplate* t : asked_templates()) {
        if (!serves(*t, spec_of(p))) continue;
        const LoadedConfig loaded(
            device_, *t, spec_of(p),
            t->default_config(spec_of(p), arch_for(*device_, *t, spec_of(p)), shape_of(p),
                              typical_device(arch_for(*device_, *t, spec_of(p))).facts));
        check_spoilt(loaded, p, arithmetic_of(*t), std::string(t->name()) + " " + to_text(p));
      }
    }
  }

  // Which keys score +inf, -inf or NaN with every row.
  enum class OddKeys { kNone, kSome, kAll };

  // Element 0 decides: of Q it is NaN, inf or -inf in some rows (8 bits have NaN alone), 0.5 or
  // -0.5 in others; of K 1 or infinite.
  static AttentionCase odd_scores(const Problem& p, OddKeys keys) {
    AttentionCase c =
        is_8_bit(p) ? clean_case(p) : AttentionCase(p, Layout::kPadded, Inputs::kNormal, 5);
    for (int64_t row = 0; row < p.seqlen_q; ++row)
      for (int64_t head = 0; head < p.num_heads_q; ++head) {
        const float odd[] = {0.5F, kNan, kInfinity, -0.5F, -kInfinity, 0.5F, 0.5F};
        const float value = odd[(row + 3 * head) % 7];
        c.q.set(0, row, head, 0, is_8_bit(p) && std::isinf(value) ? 0.5F : value);
      }
    for (int64_t key = 0; key < p.seqlen_kv; ++key)
      for (int64_t head = 0; head < p.num_heads_kv; ++head) {
        float value = keys == OddKeys::kAll ? -kInfinity : 1.0F;
        if (keys == OddKeys::kSome && key == p.seqlen_kv / 3) value = -kInfinity;
        if (keys == OddKeys::kSome && key == p.seqlen_kv / 2) value = kInfinity;
        if (keys == OddKeys::kSome && key == p.seqlen_kv - 2) value = kNan;
        c.k.set(0, key, head, 0, p.dtype_kv == Dtype::kE4m3 && std::isinf(value) ? kNan : value);
      }
    return c;
  }

  void check_odd_scores(const Problem& p) {
    for (const KernelTemplate* t : asked_templates())
      for_configs(*t, p, [&](const LoadedConfig& loaded, const std::string& trace) {
        for (const OddKeys keys : {OddKeys::kNone, OddKeys::kSome, OddKeys::kAll}) {
          const AttentionCase c = odd_scores(p, keys);
          EXPECT_EQ(verdict(c, loaded.run(c).result, arithmetic_of(*t)), "")
              << trace << " odd keys " << static_cast<int>(keys);
        }
      });
  }

  void check_all_odd_scores() {
    if (!device_) return;
    for (const char* dtype :
         {"bf16", "fp16", "fp32", "fp32,accuracy=fast", "e4m3", "e4m3,dtype_kv=e5m2",
          "e4m3,dtype_kv=e5m2,accuracy=fast,scale_block=64"})
      for (const char* shape : {"seqlen_q=70,seqlen_kv=150,mask=causal_bottom_right",
                                "seqlen_q=150,seqlen_kv=70,window=40:5"})
        check_odd_scores(
            parse_problem(std::string("head_dim=64,heads=4/2,") + shape + ",dtype=" + dtype));
  }

  // Rows that see nothing are exactly 0 also where V is NaN; the others show it.
  void check_empty_rows(const Problem& p) {
    AttentionCase c(p, Layout::kContiguous, Inputs::kNormal, 1);
    for (int64_t key = 0; key < p.seqlen_kv; ++key)
      for (int64_t column = 0; column < p.head_dim_v; ++column) c.v.set(0, key, 0, column, kNan);
    const auto empty = (p.seqlen_q - p.seqlen_kv) * p.head_dim_v;
    for (const KernelTemplate* t : asked_templates())
      for_configs(*t, p, [&](const LoadedConfig& loaded, const std::string& trace) {
        const std::vector<double> o = loaded.run(c).result.o;
        EXPECT_TRUE(std::all_of(o.begin(), o.begin() + empty, [](double x) { return x == 0; }))
            << trace;
        EXPECT_TRUE(std::all_of(o.begin() + empty, o.end(), [](double x) { return std::isnan(x); }))
            << trace;
      });
  }

  // Also where all factors of K are NaN: rows that see keys are NaN, O and LSE; the others keep to
  // the rule.
  void check_empty_rows_of_factors(const Problem& p) {
    AttentionCase c = clean_case(p);
    for (float& factor : c.k_scale.values) factor = kNan;
    const auto empty = p.seqlen_q - p.seqlen_kv;
    for (const KernelTemplate* t : asked_templates())
      for_configs(*t, p, [&](const LoadedConfig& loaded, const std::string& trace) {
        const AttentionResult got = loaded.run(c).result;
        for (int64_t row = 0; row < p.seqlen_q; ++row) {
          const double lse = got.lse[static_cast<size_t>(row)],
                       o = got.o[static_cast<size_t>(row * p.head_dim_v)];
          if (row < empty)
            EXPECT_TRUE(o == 0 && lse == -kInfinity) << trace << " row " << row << ": " << o;
          else
            EXPECT_TRUE(std::isnan(o) && std::isnan(lse)) << trace << " row " << row << ": " << o;
          if (HasFailure()) return;
        }
      });
  }

  void check_all_empty_rows() {
    if (!device_) return;
    for (const char* dtype : {"bf16", "fp16", "fp32", "fp32,accuracy=fast", "fp32,accuracy=split",
                              "e4m3,accuracy=fast", "e4m3,scale_block=64"})
      for (const char* head_dim : {"72", "256"})
        check_empty_rows(parse_problem(
            std::string("heads=1,seqlen_q=150,seqlen_kv=70,mask=causal_bottom_right,head_dim=") +
            head_dim + ",dtype=" + dtype));
  }

  void check_all_empty_rows_of_factors() {
    if (!device_) return;
    for (const char* options : {"", ",accuracy=fast", ",scale_block=64"})
      for (const char* head_dim : {"64", "128"})
        check_empty_rows_of_factors(parse_problem(
            std::string("dtype=e4m3,heads=1,seqlen_q=150,seqlen_kv=70,mask=causal_bottom_right,"
                        "head_dim=") +
            head_dim + options));
  }
};

class Cpu : public NonFinite {};
class Cuda : public NonFinite {};

TEST_F(Cpu, OddValuesOf8BitsStayInTheirHeads) {
  open("cpu");
  check_spoilt_heads();
}

TEST_F(Cuda, OddValuesOf8BitsStayInTheirHeads) {
  open("cuda");
  check_spoilt_heads();
}

// NaN and +inf make O and LSE of their own row NaN, and of no other row. A row with only -inf
// counts as a row that sees no key.
TEST_F(Cpu, NonFiniteScoresMakeOnlyTheirRowsNan) {
  open("cpu");
  check_all_odd_scores();
}

TEST_F(Cuda, NonFiniteScoresMakeOnlyTheirRowsNan) {
  open("cuda");
  check_all_odd_scores();
}

TEST_F(Cpu, RowsThatSeeNothingAreZero) {
  open("cpu");
  check_all_empty_rows();
}

TEST_F(Cpu, RowsThatSeeNothingAreZeroWithFactorsOfNan) {
  open("cpu");
  check_all_empty_rows_of_factors();
}

TEST_F(Cuda, RowsThatSeeNothingAreZero) {
  open("cuda");
  check_all_empty_rows();
}

}  // namespace
}  // namespace attune::testing
