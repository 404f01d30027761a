// SPDX-License-Identifier: Apache-2.0
// Laws between two kernels of score features, whatever the numbers are: a constant of a
// row moves LSE alone, a mask that hides nothing changes no bit, hidden positions have no effect.
// Every template on every device that answers; Cpu/* and Cuda/* are separate CTest entries.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "generator/score/language/user_program.hpp"
#include "tests/templates/numerics/device_fixture.hpp"

namespace attune::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

ProgramDigest score_program_of(const char* text) {
  return read_user_program(text, score::Kind::kScore, "score_mod").digest;
}
ProgramDigest mask_program_of(const char* text) {
  return read_user_program(text, score::Kind::kMask, "mask_mod").digest;
}

// The value that an element of a tensor must have.
using Value = std::function<double(const std::vector<int64_t>& at)>;

// Sets each element of a capture to its value, in a contiguous layout.
void set_capture(AttentionCase* c, const std::string& name, const Value& value) {
  for (HostCapture& capture : c->captures) {
    if (capture.spec.name != name) continue;
    std::vector<int64_t> extents = capture.spec.extents;
    int64_t count = 1, stride = 1;
    for (size_t axis = extents.size(); axis-- > 0; stride *= extents[axis], count = stride)
      capture.strides[axis] = stride;
    capture.bytes.assign(static_cast<size_t>(count * capture_bytes(capture.spec.type)),
                         std::byte{0});
    std::vector<int64_t> at(extents.size());
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i;
      for (size_t axis = at.size(); axis-- > 0; rest /= extents[axis])
        at[axis] = rest % extents[axis];
      store_capture(capture.spec.type, capture.bytes.data(), i, value(at));
    }
    return;
  }
  FAIL() << "no capture " << name;
}

struct Result {
  std::vector<double> o, lse;
};

class Laws : public DeviceFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { open(GetParam()); }

  // Returns the default config of `a` and a random one, if both are legal for `b` too.
  std::vector<Config> shared_configs(const KernelTemplate& t, const Problem& a, const Problem& b) {
    const Arch arch = arch_for(*device_, t, spec_of(a));
    const SearchSpace space_of_b = t.space(spec_of(b), arch);
    const std::vector<Config> legal = t.space(spec_of(a), arch).enumerate();
    std::vector<Config> configs{
        t.default_config(spec_of(a), arch, shape_of(a), typical_device(arch).facts)};
    std::mt19937_64 random(3);
    configs.push_back(legal[random() % legal.size()]);
    std::erase_if(configs, [&](const Config& one) { return space_of_b.broken(one).has_value(); });
    return configs;
  }

  std::optional<Result> run(const KernelTemplate& t, const AttentionCase& c, const Config& config) {
    try {
      std::unique_ptr<LoadedConfig>& loaded =
          loaded_[fmt::format("{} {} {}", t.name(), to_text(spec_of(c.problem)), config.to_text())];
      if (loaded == nullptr)
        loaded = std::make_unique<LoadedConfig>(device_, t, spec_of(c.problem), config);
      const RunOutcome outcome = loaded->run(c);
      return Result{outcome.result.o, outcome.result.lse};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCompile) << error.what();  // ptxas may want registers
      return std::nullopt;
    }
  }

  using Edit = std::function<void(AttentionCase*)>;
  using Compare = std::function<void(const Result&, const Result&, const AttentionCase& of_a)>;

  // Runs both problems on the same q, k and v, in every template that serves both, at several
  // lengths.
  void compare(const Problem& a, const Edit& edit_a, const Problem& b, const Edit& edit_b,
               const Compare& check) {
    if (!device_) return;
    int ran = 0;
    for (const KernelTemplate* t : asked_templates()) {
      if (!serves(*t, spec_of(a)) || !serves(*t, spec_of(b))) continue;
      for (const auto& [rows, keys] : {std::pair(3, 5), std::pair(1, 70), std::pair(65, 150)}) {
        Problem first = a, second = b;
        first.seqlen_q = second.seqlen_q = rows;
        first.seqlen_kv = second.seqlen_kv = keys;
        AttentionCase case_a(first, Layout::kPadded, Inputs::kNormal, 11);
        AttentionCase case_b(second, Layout::kPadded, Inputs::kNormal, 11);
        edit_a(&case_a);
        edit_b(&case_b);
        for (const Config& config : shared_configs(*t, first, second)) {
          SCOPED_TRACE(fmt::format("{} {} {}", t->name(), to_text(first), config.to_text()));
          const auto of_a = run(*t, case_a, config), of_b = run(*t, case_b, config);
          if (!of_a || !of_b) continue;
          check(*of_a, *of_b, case_a);
          ++ran;
        }
      }
    }
    EXPECT_GT(ran, 0);
  }

  std::map<std::string, std::unique_ptr<LoadedConfig>> loaded_;  // by template, spec and config

  static void nothing(AttentionCase*) {}

  // The last bits of LSE may differ: the compiler may fuse a product and a sum in only one kernel.
  static void expect_same_bits(const Result& a, const Result& b, const AttentionCase&) {
    EXPECT_EQ(a.o, b.o);
    expect_near(a.lse, b.lse, 1e-6);
  }

  // Allows for rounding of P and O: under another row maximum, P is rounded differently.
  static void expect_rounded_alike(const Result& a, const Result& b, const AttentionCase&) {
    expect_near(a.o, b.o, 0.01);
    expect_near(a.lse, b.lse, 1e-5);
  }

  template <class Values>
  static void expect_near(const Values& a, const Values& b, double relative) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i]) continue;  // infinities
      ASSERT_NEAR(a[i], b[i], relative * std::max(1.0, std::abs(static_cast<double>(a[i])))) << i;
    }
  }

  static Problem base(const std::string& more) {
    return parse_problem("dtype=bf16,head_dim=64,heads=4/2,batch=2,seqlen=8" + more);
  }
};

// Adds each mask in turn to a spec that has a score stage without it.
TEST_P(Laws, AMaskThatHidesNothingChangesNoBit) {
  Problem plain = base(",mask=causal_bottom_right");
  plain.scores.score_mod = score_program_of("return score * 0.75;");
  struct Case {
    const char* capture;
    void (*add)(Problem*);
    double value;
  };
  const Case cases[] = {
      {"mask_tensor", [](Problem* p) { p->scores.mask_tensor = true; }, 1},
      {"key_lengths", [](Problem* p) { p->scores.key_lengths = true; }, 1000},
      {"documents_q", [](Problem* p) { p->scores.documents = true; }, 7},
      {"", [](Problem* p) { p->scores.chunk = 1000; }, 0},
      {"", [](Problem* p) { p->scores.mask_mod = mask_program_of("return kv_idx < seqlen_kv;"); },
       0},
      {"keep",
       [](Problem* p) {
         p->scores.mask_mod =
             mask_program_of("// capture keep: bool[2]\nreturn keep[q_idx][kv_idx] || head < 0;");
       },
       1}};
  for (const Case& one : cases) {
    Problem masked = plain;
    one.add(&masked);
    const Value value = [&](const auto&) { return one.value; };
    compare(
        plain, nothing, masked,
        [&](AttentionCase* c) {
          if (*one.capture != '\0') set_capture(c, one.capture, value);
          if (c->problem.scores.documents) set_capture(c, "documents_kv", value);
        },
        expect_same_bits);
  }
}

TEST_P(Laws, ASinkOfMinusInfinityIsNone) {
  for (const char* more : {"", ",mask=causal_top_left,window=20:0", ",softcap=20"}) {
    Problem sunk = base(more);
    sunk.scores.sinks = ScoreTensor::kFp32;
    compare(
        base(more), nothing, sunk,
        [](AttentionCase* c) { set_capture(c, "sinks", [](const auto&) { return -kInfinity; }); },
        expect_same_bits);
  }
}

// Exchanges the kinds of two masks: one is built in, the other is a program.
TEST_P(Laws, TheOrderOfMasksDoesNotMatter) {
  Problem first = base(",chunk=16"), second = base("");
  first.scores.mask_mod = mask_program_of("return kv_idx < 40 || head == 1;");
  first.scores.mask_tensor = second.scores.mask_tensor = true;
  second.scores.mask_mod = mask_program_of(
      "return (kv_idx < 40 || head == 1) && "
      "floordiv(q_idx + seqlen_kv - seqlen_q, 16) == floordiv(kv_idx, 16);");
  const Edit same_tensor = [](AttentionCase* c) {
    set_capture(c, "mask_tensor", [](const std::vector<int64_t>& at) {
      return static_cast<double>((at[0] + at[1] + 3 * at[2] + at[3]) % 7 != 0);
    });
  };
  compare(first, same_tensor, second, same_tensor, expect_same_bits);
}

// O may differ by rounding of P and O. LSE must differ by the constant.
TEST_P(Laws, AConstantOfARowMovesLseAlone) {
  const auto constant = [](const std::vector<int64_t>& at) {
    return 0.5 * static_cast<double>(at[0] + 2 * at[1] + at[2] % 5) - 3;
  };
  Problem moved = base(",mask=causal_bottom_right"), still = moved;
  still.scores.score_mod = score_program_of("return score;");
  moved.scores.score_mod =
      score_program_of("// capture c: fp32[3]\nreturn score + c[batch][head][q_idx];");
  const auto extend = [&](AttentionCase* c) {
    for (HostCapture& capture : c->captures)
      capture.spec.extents = {c->problem.batch, c->problem.num_heads_q, c->problem.seqlen_q};
    set_capture(c, "c", constant);
  };
  compare(still, nothing, moved, extend,
          [&](const Result& a, const Result& b, const AttentionCase& c) {
            for (size_t i = 0; i < a.o.size(); ++i) ASSERT_NEAR(a.o[i], b.o[i], 0.04) << i;
            const Problem& p = c.problem;
            for (size_t i = 0; i < a.lse.size(); ++i) {
              const auto row = static_cast<int64_t>(i);
              const double shift = constant({row / p.seqlen_q / p.num_heads_q,
                                             row / p.seqlen_q % p.num_heads_q, row % p.seqlen_q});
              if (a.lse[i] == -kInfinity)
                ASSERT_EQ(b.lse[i], -kInfinity) << i;
              else
                ASSERT_NEAR(a.lse[i] + shift, b.lse[i], 1e-4 * std::max(1.0, std::abs(b.lse[i])));
            }
          });
}

// The sm_90 kernels treat a term that is linear in a position differently from a term with a
// maximum. Row maxima rise in each block here.
TEST_P(Laws, ScoresThatRiseWithTheDistanceAreTheSameInEitherForm) {
  Problem linear = base(",mask=causal_bottom_right"), bent = linear;
  linear.scores.score_mod = score_program_of("return score + 0.25 * (q_idx - kv_idx);");
  bent.scores.score_mod = score_program_of("return score + 0.25 * max(q_idx - kv_idx, -100000);");
  compare(linear, nothing, bent, nothing,
          [&](const Result& a, const Result& b, const AttentionCase&) {
            for (size_t i = 0; i < a.o.size(); ++i) ASSERT_NEAR(a.o[i], b.o[i], 0.04) << i;
            for (size_t i = 0; i < a.lse.size(); ++i) {
              if (a.lse[i] == -kInfinity)
                ASSERT_EQ(b.lse[i], -kInfinity) << i;
              else
                ASSERT_NEAR(a.lse[i], b.lse[i], 1e-4 * std::max(1.0, std::abs(b.lse[i]))) << i;
            }
          });
}

// The value of a bias at hidden positions must not matter. A bias of -infinity or below -1e30 hides
// like a mask.
TEST_P(Laws, BiasesOfHiddenPositionsNeverReachTheOutput) {
  Problem p = base(",mask=causal_bottom_right,bias=fp32");
  p.scores.mask_tensor = true;
  const auto hides = [](const std::vector<int64_t>& at) { return (at[2] + at[3]) % 3 == 0; };
  const auto edit = [&](double hidden) {
    return [hides, hidden](AttentionCase* c) {
      set_capture(c, "mask_tensor",
                  [&](const std::vector<int64_t>& at) { return hides(at) ? 0.0 : 1.0; });
      set_capture(c, "bias", [&](const std::vector<int64_t>& at) {
        return hides(at) ? hidden : 0.25 * static_cast<double>((at[2] + 5 * at[3]) % 9);
      });
    };
  };
  for (const double hidden : {kNan, kInfinity, -kInfinity, 3e38})
    compare(p, edit(1), p, edit(hidden), expect_same_bits);
  Problem without = p;
  without.scores.mask_tensor = false;
  for (const double hidden : {-kInfinity, -1.5e30})
    compare(
        p, edit(1), without,
        [&](AttentionCase* c) {
          set_capture(c, "bias", [&](const std::vector<int64_t>& at) {
            return hides(at) ? hidden : 0.25 * static_cast<double>((at[2] + 5 * at[3]) % 9);
          });
        },
        expect_rounded_alike);
}

TEST_P(Laws, ANanThatARowSeesMakesThatRowNanAndNoOther) {
  const Problem p = base(",mask=causal_bottom_right,bias=fp32");
  const auto edit = [](double value) {
    return [value](AttentionCase* c) {
      const int64_t row = c->problem.seqlen_q - 1;  // sees all keys
      set_capture(c, "bias", [=](const std::vector<int64_t>& at) {
        return at == std::vector<int64_t>{1, 2, row, 3} ? value
                                                        : 0.125 * static_cast<double>(at[3] % 4);
      });
    };
  };
  compare(p, edit(0), p, edit(kNan), [](const Result& a, const Result& b, const AttentionCase& c) {
    const Problem& q = c.problem;
    const int64_t row = q.seqlen_q - 1;
    for (size_t i = 0; i < a.o.size(); ++i) {
      const int64_t of = static_cast<int64_t>(i) / q.head_dim_v;
      const bool spoilt = of == (1 * q.seqlen_q + row) * q.num_heads_q + 2;
      if (spoilt)
        ASSERT_TRUE(std::isnan(b.o[i])) << i;
      else
        ASSERT_EQ(a.o[i], b.o[i]) << i;
    }
    for (size_t i = 0; i < a.lse.size(); ++i) {
      const bool spoilt = static_cast<int64_t>(i) == (1 * q.num_heads_q + 2) * q.seqlen_q + row;
      if (spoilt)
        ASSERT_TRUE(std::isnan(b.lse[i])) << i;
      else
        ASSERT_EQ(a.lse[i], b.lse[i]) << i;
    }
  });
}

// NaN is in K of keys that key_lengths hides from every row.
TEST_P(Laws, NanInHiddenKeysNeverReachesTheOutput) {
  Problem p = base("");
  p.scores.key_lengths = true;
  const auto edit = [](double value) {
    return [value](AttentionCase* c) {
      const int64_t length = c->problem.seqlen_kv / 2;
      set_capture(c, "key_lengths", [=](const auto&) { return static_cast<double>(length); });
      for (int64_t key = length; key < c->problem.seqlen_kv; ++key) c->k.set(1, key, 1, 5, value);
    };
  };
  compare(p, edit(0), p, edit(kNan), expect_same_bits);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Laws, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, Laws, ::testing::Values("cuda"));

}  // namespace
}  // namespace attune::testing
