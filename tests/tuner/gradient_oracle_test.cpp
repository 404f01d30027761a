// SPDX-License-Identifier: Apache-2.0
// Compares the oracle of op attention_backward (tuner/oracles/gradient_pairs.hpp) with central
// differences of a forward pass in float64. Random specs cover all features: gradients of q, k and
// v, and of the tensors that score features read. Only o and lse, inputs of the oracle, are fp32.
#include "tuner/oracles/gradient_pairs.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "generator/score/analysis/rewrites.hpp"
#include "generator/score/language/user_program.hpp"
#include "generator/template_registry.hpp"
#include "tests/templates/numerics/numerics_fixture.hpp"
#include "tests/tuner/gradient_forward.hpp"
#include "tuner/fuzz/draw.hpp"

namespace attune::testing {
namespace {

// Compares the oracle's gradients with differences, for one problem.
class Comparison {
 public:
  Comparison(std::shared_ptr<const Device> device, const Problem& problem, uint64_t seed)
      : device_(std::move(device)), problem_(problem), inputs_(*device_, seed) {
    inputs_.open(problem_);
    forward_.emplace(*device_, problem_, &inputs_);
    pairs_.emplace(bench_);
  }

  void check_tensors() {
    Host dq{forward_->of(Role::kQ)}, dk{forward_->of(Role::kK)}, dv{forward_->of(Role::kV)};
    for (Host* gradient : {&dq, &dk, &dv})
      std::fill(gradient->values.begin(), gradient->values.end(), 0);
    const double scale = double{problem_.scale()};
    for_pairs([&](const Place& at, const GradientPairs::Pair& pair) {
      const int kv_head = at.head / (problem_.num_heads_q / problem_.num_heads_kv);
      const auto add = [](double factor, const double* from, double* to, int count) {
        for (int i = 0; i < count; ++i) to[i] += factor * from[i];
      };
      add(scale * pair.ds, forward_->of(Role::kK).row(at.batch, at.key, kv_head),
          dq.row(at.batch, at.row, at.head), problem_.head_dim_qk);
      add(scale * pair.ds, forward_->of(Role::kQ).row(at.batch, at.row, at.head),
          dk.row(at.batch, at.key, kv_head), problem_.head_dim_qk);
      add(pair.p, forward_->of(Role::kDout).row(at.batch, at.row, at.head),
          dv.row(at.batch, at.key, kv_head), problem_.head_dim_v);
    });
    for (const auto& [role, gradient] :
         {std::pair{Role::kQ, &dq}, {Role::kK, &dk}, {Role::kV, &dv}}) {
      std::vector<double>& values = forward_->of(role).values;
      for (size_t i = 0; i < values.size(); i += 3) {
        const double middle = values[i];
        expect(
            gradient->values[i], [&](double by) { values[i] = middle + by; },
            fmt::format("role {} element {}", static_cast<int>(role), i));
        values[i] = middle;
      }
    }
  }

  // Checks the gradient of loads from a capture, at single places. `of` returns the oracle's value.
  void check_places(int capture, const std::function<double(const GradientPairs::Pair&)>& of) {
    forward_->moved_capture = capture;
    int number = 0;
    for_pairs([&](const Place& at, const GradientPairs::Pair& pair) {
      if (number++ % 3 != 0) return;
      forward_->moves = [&](const Place& place) {
        return place.batch == at.batch && place.head == at.head && place.row == at.row &&
               place.key == at.key;
      };
      expect(
          of(pair), [&](double by) { forward_->moved_by = by; },
          fmt::format("capture {} row {} key {}", capture, at.row, at.key));
    });
    forward_->moved_capture = -1;
  }

  void check_sinks() {
    for (int head = 0; head < problem_.num_heads_q; ++head) {
      double sum = 0;
      for (int64_t batch = 0; batch < problem_.batch; ++batch) {
        const GradientPairs::QueryHead rows = pairs_->query_head(batch, head);
        for (size_t i = 0; i < rows.lse.size(); ++i)
          if (std::isfinite(rows.lse[i]))
            sum -=
                std::exp(pairs_->scores().sink(head) - double{rows.lse[i]}) * double{rows.delta[i]};
      }
      forward_->moved_sink = head;
      expect(
          sum, [&](double by) { forward_->moved_by = by; }, fmt::format("sink {}", head));
    }
    forward_->moved_sink = -1;
  }

  int compared = 0, kinks = 0;

 private:
  void for_pairs(const std::function<void(const Place&, const GradientPairs::Pair&)>& visit) const {
    const int ratio = problem_.num_heads_q / problem_.num_heads_kv;
    for (int64_t batch = 0; batch < problem_.batch; ++batch)
      for (int head = 0; head < problem_.num_heads_q; ++head) {
        const GradientPairs::QueryHead rows = pairs_->query_head(batch, head);
        const GradientPairs::KeyHead keys = pairs_->key_head(batch, head / ratio);
        for (int64_t row = 0; row < problem_.seqlen_q; ++row)
          for (int64_t key = 0; key < problem_.seqlen_kv; ++key)
            if (pairs_->sees(row, key))
              visit({batch, head, row, key}, pairs_->pair(rows, keys, batch, head, row, key));
      }
  }

  void expect(double said, const std::function<void(double)>& move, const std::string& what) {
    constexpr double kStep = 1e-5;
    const auto value_at = [&](double by) {
      move(by);
      return forward_->value();
    };
    const double middle = value_at(0), more = value_at(kStep), less = value_at(-kStep);
    move(0);
    const double left = (middle - less) / kStep, right = (more - middle) / kStep;
    if (!(std::abs(left - right) <= 1e-2 * (1 + std::abs(said)))) {
      ++kinks;
      return;
    }
    ++compared;
    EXPECT_NEAR(said, (left + right) / 2, 2e-5 * (1 + std::abs(said)))
        << what << " of " << to_text(problem_);
  }

  std::shared_ptr<const Device> device_;
  const Problem problem_;
  attune::Inputs inputs_;
  const OracleBench bench_{*device_, problem_, inputs_, nullptr};
  std::optional<Forward> forward_;
  std::optional<GradientPairs> pairs_;
};

// Returns the index in captures_of() of the last capture with this name, or with `first` of the
// first; -1 if there is none. If score_mod and a feature use the same name, score_mod's capture is
// the first and the feature's the last.
int capture_of(const Problem& problem, const std::string& name, bool first = false) {
  const std::vector<CaptureSpec> all = captures_of(problem);
  int found = -1;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name && (found < 0 || !first)) found = static_cast<int>(i);
  return found;
}

// Returns a small fp32 problem with a pair of features.
Problem drawn_problem(uint64_t seed, const Device& device) {
  std::mt19937_64 random(seed);
  Problem p = draw_kernel(seed, device, {&template_by_name("prefill_cpu")}).problem;
  p.op = Op::kAttentionBackward;
  p.dtype_q = p.dtype_kv = p.dtype_o = Dtype::kFp32;
  p.fp8 = {};
  p.scores.block_map = BlockMapUse::kNone;
  p.head_dim_qk = 16;
  p.head_dim_v = random() % 2 == 0 ? 16 : 24;
  p.num_heads_q = 2;
  p.num_heads_kv = 1 + static_cast<int>(random() % 2);
  p.batch = 2;
  p.seqlen_q = 2 + static_cast<int64_t>(random() % 5);
  p.seqlen_kv = 2 + static_cast<int64_t>(random() % 6);
  if (random() % 3 == 0) p.dropout = 0.25F;
  return p;
}

class GradientOracle : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = open_device("cpu:1");
    } catch (const Error& error) {
      GTEST_SKIP() << "no CPU target here: " << error.what();
    }
  }

  void check(const Problem& p, uint64_t seed) {
    Comparison of_tensors(device_, p, seed);
    of_tensors.check_tensors();
    count(of_tensors);
    const auto of_score = [](const GradientPairs::Pair& pair) { return pair.dz; };
    for (const auto& [there, name] :
         {std::pair{p.scores.bias != ScoreTensor::kNone, "bias"},
          {p.scores.relative_bias != ScoreTensor::kNone, "relative_bias"}})
      if (there) of_tensors.check_places(capture_of(p, name), of_score);
    if (p.scores.sinks != ScoreTensor::kNone) of_tensors.check_sinks();
    if (p.scores.score_mod) check_loads(p, seed);
  }

  // Checks captures that are read by one load.
  void check_loads(Problem p, uint64_t seed) {
    const score::Program& program =
        user_program(p.scores.score_mod, score::Kind::kScore, "score_mod").program;
    const std::vector<int> loads = score::float_loads(program);
    for (size_t i = 0; i < loads.size(); ++i) {
      const int capture = program.nodes()[static_cast<size_t>(loads[i])].index;
      const auto reads_it = [&](int load) {
        return program.nodes()[static_cast<size_t>(load)].index == capture;
      };
      const int number = capture_of(p, program.captures()[static_cast<size_t>(capture)].name, true);
      if (std::count_if(loads.begin(), loads.end(), reads_it) != 1 || number < 0) continue;
      p.backward.score_gradient = ScoreGradient::kLoad;
      p.backward.load = static_cast<int>(i);
      Comparison of_load(device_, p, seed);
      of_load.check_places(number, [](const GradientPairs::Pair& pair) { return pair.ds; });
      loads_compared_ += of_load.compared;
      count(of_load);
    }
  }

  void count(const Comparison& comparison) {
    compared_ += comparison.compared;
    kinks_ += comparison.kinks;
  }

  std::shared_ptr<const Device> device_;
  int compared_ = 0, kinks_ = 0, loads_compared_ = 0;
};

TEST_F(GradientOracle, IsTheDifferenceOfForwards) {
  const int specs = from_environment("ATTUNE_NUMERICS_SPECS", 24);
  for (int seed = 1; seed <= specs && !HasFailure(); ++seed) {
    const Problem p = drawn_problem(static_cast<uint64_t>(seed), *device_);
    try {
      validate(p);
    } catch (const Error&) {
      continue;
    }
    check(p, static_cast<uint64_t>(seed));
  }
  EXPECT_GT(compared_, 20 * specs);
  EXPECT_LT(kinks_, compared_ / 20);
}

TEST_F(GradientOracle, GradientOfLoadsIsTheDifferenceOfForwards) {
  constexpr const char* kDeclared =
      "// capture table: fp32[2]\n// capture keys: bf16[1]\n// capture ids: int32[1]\n// scalar "
      "by: "
      "float\n";
  for (const char* text :
       {"score * table[head][q_idx - kv_idx + 6]", "score + by * keys[kv_idx]",
        "tanh(score * keys[ids[q_idx]]) + table[batch][kv_idx]",
        "kv_idx > q_idx ? score - keys[0] : score * exp(0.1f * table[q_idx][kv_idx])"}) {
    Problem p = parse_problem(
        "op=attention_backward,dtype=fp32,head_dim=16,heads=4/2,batch=2,seqlen_q=4,seqlen_kv=5,"
        "softcap=3,relative_bias=fp32,dropout=0.25");
    const std::string program = std::string(kDeclared) + "return " + text + ";";
    p.scores.score_mod = read_user_program(program, score::Kind::kScore, "score_mod").digest;
    check_loads(p, 7);
  }
  EXPECT_GT(loads_compared_, 200);
  EXPECT_LT(kinks_, compared_ / 20);
}

}  // namespace
}  // namespace attune::testing
