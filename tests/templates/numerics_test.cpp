// SPDX-License-Identifier: Apache-2.0
// Every template on every device that answers, against the float64 oracle: random specs, layouts, inputs and configs, lengths
// at the edges of the config's tiles. Suites Cpu.* and Cuda.* are separate CTest entries.
//   ATTUNE_NUMERICS_SPECS=N   specs per template (default 6)
//   ATTUNE_NUMERICS_SEED=N    first seed (default 1); a failure prints the seed that repeats it
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "generator/core/error.hpp"
#include "runtime/open_device.hpp"
#include "tests/support/device_run.hpp"

namespace attune::testing {
namespace {

constexpr Inputs kInputs[] = {Inputs::kNormal,     Inputs::kLogitsTimes16, Inputs::kLogitsTimes64, Inputs::kAllNegative,
                              Inputs::kOutlierRow, Inputs::kOutliers,      Inputs::kSaturated,     Inputs::kSubnormals};
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kHeadsFirst, Layout::kPadded};
constexpr int kCasesPerConfig = 5;

int from_environment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

class Numerics : public ::testing::Test {
 protected:
  void open(const char* target) {
    try {
      device_ = open_device(target);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  void check_case(const LoadedConfig& loaded, const AttentionCase& test_case, Arithmetic arithmetic, const std::string& trace) {
    const RunOutcome outcome = loaded.run(test_case);
    const std::string broken = verdict(test_case, outcome.result, arithmetic);
    EXPECT_TRUE(broken.empty()) << trace << ": " << broken;
    EXPECT_TRUE(outcome.gaps_intact) << trace << ": wrote outside o";
    EXPECT_TRUE(outcome.repeats_bit_equal) << trace << ": two runs differ";
  }

  void check_config(const KernelTemplate& t, const Problem& base, const Config& config, bool is_default, std::mt19937_64& random,
                    const std::string& trace) {
    std::optional<LoadedConfig> made;
    try {
      made.emplace(device_, t, spec_of(base), config);
    } catch (const Error& error) {
      // ptxas may refuse a legal config for want of registers: for the tuner a failed trial. A default must compile.
      EXPECT_FALSE(is_default || error.code() != ErrorCode::kCompile) << trace << " " << config.to_text() << ": " << error.what();
      return;
    }
    const LoadedConfig& loaded = *made;
    const bool oracle = t.name().substr(0, 9) == "reference";  // never timed: a spill is no fault
    EXPECT_FALSE(is_default && !oracle && !loaded.fault().empty()) << trace << " " << config.to_text() << ": " << loaded.fault();
    if (!oracle && !loaded.fault().empty()) return;  // the tuner never runs it
    const Arithmetic arithmetic = oracle || device_->target() == Target::kCpu ? Arithmetic::kFp32 : Arithmetic::kKernel;
    const size_t styles = is_fp8(base) ? std::size(kInputs) : std::size(kInputs) - 2;  // the last two are for 8 bits
    for (int i = 0; i < kCasesPerConfig; ++i) {
      Problem p = base;
      draw_lengths(random, config, &p);
      const AttentionCase test_case(p, kLayouts[random() % 3], kInputs[random() % styles], random());
      check_case(loaded, test_case, arithmetic, trace + " " + to_text(p) + " config " + config.to_text());
      if (HasFailure()) return;
    }
  }

  // The default and two random legal configs for each of several random specs.
  void check_template(const KernelTemplate& t) {
    const int specs = from_environment("ATTUNE_NUMERICS_SPECS", 6);
    const int first_seed = from_environment("ATTUNE_NUMERICS_SEED", 1);
    for (int seed = first_seed; seed < first_seed + specs && !HasFailure(); ++seed) {
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      const Problem base = random_problem(random, *device_, t);
      const Arch arch = arch_for(*device_, t, spec_of(base));
      const std::string trace = std::string(t.name()) + " seed " + std::to_string(seed);
      check_config(t, base, t.default_config(spec_of(base), arch, {1, 300, 300, base.num_heads_q, base.num_heads_kv}), true, random, trace);
      const std::vector<Config> configs = t.space(spec_of(base), arch).enumerate();
      for (int i = 0; i < 2 && !HasFailure(); ++i) check_config(t, base, configs[random() % configs.size()], false, random, trace);
    }
  }

  void check_all(Target target) {
    if (!device_) return;
    int seen = 0;
    const std::string only = std::getenv("ATTUNE_NUMERICS_TEMPLATE") != nullptr ? std::getenv("ATTUNE_NUMERICS_TEMPLATE") : "";
    for (const KernelTemplate* t : all_templates()) {
      if (!only.empty() && t->name() != only) continue;
      if (!serves_something(*t)) continue;
      check_template(*t);
      ++seen;
    }
    EXPECT_GE(seen, only.empty() ? (target == Target::kCpu ? 2 : 3) : 1);
  }

  bool serves_something(const KernelTemplate& t) const {
    for (const char* dtype : {"bf16", "fp16", "fp32", "e4m3"})
      for (const Arch& arch : device_->archs())
        if (!t.refuses(spec_of(parse_problem(std::string("head_dim=64,seqlen=8,dtype=") + dtype)), arch)) return true;
    return false;
  }

  std::shared_ptr<const Device> device_;
};

class Cpu : public Numerics {};
class Cuda : public Numerics {};

TEST_F(Cpu, EveryTemplateKeepsTheRule) {
  open("cpu");
  check_all(Target::kCpu);
}

TEST_F(Cuda, EveryTemplateKeepsTheRule) {
  open("cuda");
  check_all(Target::kCuda);
}

}  // namespace
}  // namespace attune::testing
