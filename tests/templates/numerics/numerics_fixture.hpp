// SPDX-License-Identifier: Apache-2.0
// Numerics: configs of templates on a device against the float64 oracle. Used by numerics_test.cpp
// and mask_programs_test.cpp.
#pragma once

#include <fmt/format.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>

#include "generator/core/system/error.hpp"
#include "tests/templates/numerics/device_fixture.hpp"
#include "tuner/fuzz/draw.hpp"
#include "tuner/measure/verify.hpp"

namespace attune::testing {

inline constexpr Inputs kInputs[] = {
    Inputs::kNormal,      Inputs::kLogitsTimes16, Inputs::kLogitsTimes64,
    Inputs::kAllNegative, Inputs::kOutlierRow,    Inputs::kOutliers,
    Inputs::kMeanOfV,     Inputs::kSaturated,     Inputs::kSubnormals};
inline constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kHeadsFirst, Layout::kPadded};
inline constexpr int kCasesPerConfig = 5;

inline int from_environment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

class Numerics : public DeviceFixture {
 protected:
  void check_case(const LoadedConfig& loaded, const AttentionCase& test_case, Arithmetic arithmetic,
                  const std::string& trace, const Redraw& redraw) {
    EXPECT_EQ(fault_of(loaded, test_case, arithmetic, redraw), "") << trace;
  }

  // Returns whether the config ran.
  bool check_config(const KernelTemplate& t, const Problem& base, const Config& config,
                    bool is_default, std::mt19937_64& random, const std::string& trace) {
    std::optional<LoadedConfig> made;
    try {
      made.emplace(device_, t, spec_of(base), config);
    } catch (const Error& error) {
      // ptxas may refuse a legal config for lack of registers. For the tuner that is a failed
      // trial. A default must compile.
      EXPECT_FALSE(is_default || error.code() != ErrorCode::kCompile)
          << trace << " " << config.to_text() << ": " << error.what();
      return false;
    }
    const LoadedConfig& loaded = *made;
    const bool oracle = t.is_reference();            // never timed: a spill is no fault
    const bool full = captures_of(base).size() > 1;  // many captures at a time may spill
    EXPECT_FALSE(is_default && !oracle && !full && !loaded.fault().empty())
        << trace << " " << config.to_text() << ": " << loaded.fault();
    if (!is_default && !oracle && !loaded.fault().empty()) return false;  // the tuner never runs it
    const Arithmetic arithmetic = arithmetic_of(t);
    const size_t styles = is_8_bit(base) ? std::size(kInputs)
                                         : std::size(kInputs) - 2;  // the last two are for 8 bits
    for (int i = 0; i < kCasesPerConfig; ++i) {
      Problem p = base;
      draw_lengths(random, config, &p);
      const Layout layout = kLayouts[random() % 3];
      const Inputs inputs = kInputs[random() % styles];
      const uint64_t first = random();
      const Redraw redraw = [&](uint64_t more) {
        return AttentionCase(p, layout, inputs, first + more);
      };
      const std::string drawn =
          fmt::format("{} inputs {} layout {} numbers {}", to_text(p), static_cast<int>(inputs),
                      static_cast<int>(layout), first);
      check_case(loaded, redraw(0), arithmetic, trace + " " + drawn + " config " + config.to_text(),
                 redraw);
      if (HasFailure()) break;
    }
    return true;
  }

  // Checks the default and two random legal configs for each of several random specs.
  void check_template(const KernelTemplate& t) {
    int drawn = 0, ran = 0;
    const int specs =
        from_environment("ATTUNE_NUMERICS_SPECS", device_->target() == Target::kCpu ? 3 : 6);
    const int first_seed = from_environment("ATTUNE_NUMERICS_SEED", 1);
    for (int seed = first_seed; seed < first_seed + specs && !HasFailure(); ++seed) {
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      const Problem base = random_problem(random, *device_, t);
      const Arch arch = arch_for(*device_, t, spec_of(base));
      const std::string trace = std::string(t.name()) + " seed " + std::to_string(seed);
      check_config(
          t, base,
          t.default_config(spec_of(base), arch, {1, 300, 300, base.num_heads_q, base.num_heads_kv},
                           typical_device(arch).facts),
          true, random, trace);
      const std::vector<Config> configs = t.space(spec_of(base), arch).enumerate();
      for (int i = 0; i < 2 && !HasFailure(); ++i, ++drawn)
        ran += check_config(t, base, configs[random() % configs.size()], false, random, trace);
    }
    std::cout << t.name() << ": " << ran << " of " << drawn << " random configs ran\n";
    // On a CPU every legal config runs. On a GPU ptxas may refuse some. If it refused most, little
    // would be tested.
    if (!HasFailure()) {
      EXPECT_GE(ran, device_->target() == Target::kCpu ? drawn : drawn / 4) << t.name();
    }
  }

  bool serves_something(const KernelTemplate& t) const {
    for (const char* dtype : {"bf16", "fp16", "fp32", "fp32,accuracy=fast", "e4m3"})
      if (serves(t, spec_of(
                        parse_problem(std::string("head_dim=64,heads=1,seqlen=8,dtype=") + dtype))))
        return true;
    return false;
  }

  void check_all(Target target) {
    if (!device_) return;
    int seen = 0;
    for (const KernelTemplate* t : asked_templates()) {
      if (!serves_something(*t)) continue;
      check_template(*t);
      ++seen;
    }
    EXPECT_GE(seen, asked_template().empty() ? (target == Target::kCpu ? 2 : 3) : 1);
  }

  // Checks sums over so many keys that they are flushed, with a V that has a mean. There are more
  // tiles than multiprocessors, so a block computes several in the same shared memory. Uses the
  // default config for long sequences, which does not split keys. With a window, warpgroups begin
  // and end at different steps.
  void check_long_sums(const KernelTemplate& t, const AttentionCase& c,
                       const AttentionResult& oracle, double twin_max) {
    const Problem& p = c.problem;
    const KernelSpec spec = spec_of(p);
    if (!serves(t, spec)) return;
    const Shape large{8, 4096, 4096, p.num_heads_q, p.num_heads_kv};
    const LoadedConfig loaded(device_, t, spec,
                              t.default_config(spec, arch_for(*device_, t, spec), large,
                                               typical_device(arch_for(*device_, t, spec)).facts));
    const RunOutcome outcome = loaded.run(c);
    LossComparison comparison;
    comparison.add(oracle.o.data(), outcome.result.o.data(), oracle.o.size(),
                   static_cast<double>(oracle.lse.size()));
    const std::string trace = std::string(t.name()) + " " + to_text(p);
    EXPECT_EQ(comparison.wrong(p).value_or(""), "") << trace;
    EXPECT_TRUE(outcome.repeats_bit_equal) << trace << ": two runs differ";
    if (p.fp8.accuracy == Accuracy::kFast) return;
    double worst = 0;  // other rows and columns differ by more
    for (size_t i = 0; i < oracle.o.size(); ++i)
      worst =
          std::max(worst, std::abs(outcome.result.o[i] / (1 - comparison.loss()) - oracle.o[i]));
    EXPECT_LT(worst, 0.01 + 1.5 * twin_max) << trace;
  }

  // On a GPU, heads fill the multiprocessors; a CPU needs fewer.
  void check_all_long_sums() {
    if (!device_) return;
    const std::string heads = device_->target() == Target::kCpu ? "heads=6/2" : "heads=150/2";
    for (const std::string& shape :
         {std::string("head_dim=64,heads=2,seqlen_q=9,seqlen_kv=16384,scale_block_kv=128"),
          "head_dim=128,seqlen_q=4,seqlen_kv=2300," + heads,
          "head_dim=256,seqlen_q=2,seqlen_kv=2300,dtype_kv=e5m2,mask=causal_bottom_right," + heads,
          std::string("head_dim=64,heads=2,seqlen_q=300,seqlen_kv=2600,mask=causal_bottom_right,"
                      "window=2000:0")}) {
      const Problem p = parse_problem("dtype=e4m3," + shape);
      AttentionCase c(p, Layout::kContiguous, Inputs::kMeanOfV, 1);
      const AttentionResult oracle = c.oracle();
      for (const Accuracy accuracy : {Accuracy::kAccurate, Accuracy::kFast}) {
        c.problem.fp8.accuracy = accuracy;
        const double twin_max = compare(c.twin(), oracle).max;
        for (const KernelTemplate* t : asked_templates()) check_long_sums(*t, c, oracle, twin_max);
      }
    }
  }

  // Checks a config that random choices seldom hit: `changes` to a config of 64x64 tiles.
  void check_sm90(const std::string& problem, const std::string& changes,
                  const std::string& trace) {
    check_changed("prefill_sm90", "dtype=bf16," + problem, "row_max=0,pack_heads=1", changes,
                  trace);
  }

  void check_sm90_fp8(const std::string& problem, const std::string& changes,
                      const std::string& trace) {
    check_changed("prefill_sm90_fp8", "dtype=e4m3," + problem,
                  "row_max=0,flush_keys=512,transpose_inside=0", changes, trace);
  }

  void check_changed(const std::string& name, const std::string& problem,
                     const std::string& own_knobs, const std::string& changes,
                     const std::string& trace) {
    const std::string lengths = problem.find("seqlen") == std::string::npos ? "seqlen=600," : "";
    const Problem p = parse_problem("batch=2," + lengths + problem);
    const KernelTemplate& t = template_by_name(name);
    const Config config = changed_config(own_knobs, changes);
    expect_legal_on_hopper(t, p, config);
    if (!device_) return;
    if (!serves(t, spec_of(p))) GTEST_SKIP() << "no sm_90a device";
    std::mt19937_64 random(1);
    check_config(t, p, config, false, random, trace);
  }

  // Checks a problem at exactly its lengths, instead of drawn ones.
  void check_lengths(const std::string& name, const std::string& problem,
                     const std::string& own_knobs, const std::string& changes) {
    const KernelTemplate& t = template_by_name(name);
    const Problem p = parse_problem(problem);
    const Config config = changed_config(own_knobs, changes);
    expect_legal_on_hopper(t, p, config);
    if (!device_) return;
    if (!serves(t, spec_of(p))) GTEST_SKIP() << "no sm_90a device";
    const LoadedConfig loaded(device_, t, spec_of(p), config);
    ASSERT_EQ(loaded.fault(), "") << problem << " " << changes;
    for (const Inputs inputs : {Inputs::kNormal, Inputs::kMeanOfV}) {
      const Redraw redraw = [&](uint64_t seed) {
        return AttentionCase(p, Layout::kContiguous, inputs, 1 + seed);
      };
      check_case(loaded, redraw(0), arithmetic_of(t), problem + " " + changes, redraw);
    }
  }

  static Config changed_config(const std::string& own_knobs, const std::string& changes) {
    Config config = parse_config(
        "block_m=64,block_n=64,blocks_per_sm=1,kv_slots=2,kv_ring=0,overlap=1,ping_pong=0,"
        "scheduler=1,"
        "l2_section_mb=0,o_staging=1,kv_splits=1," +
        own_knobs);
    const Config changed = parse_config(changes);
    for (const auto& [knob, value] : changed.knobs()) config.set(knob, value);
    return config;
  }
};

}  // namespace attune::testing
