// SPDX-License-Identifier: Apache-2.0
// Random problems, configs, layouts and inputs on the CPU against float64. Every operand is between
// guard pages: first its end touches one, then its begin. 1, 2 and 3 threads must give the same
// bits. A failure names the problem and the seed that repeats it.
// ATTUNE_ATTACK_TIMES=N   runs N times as many problems
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "generator/families/families.hpp"
#include "runtime/engine/device.hpp"
#include "tests/attack/mutate.hpp"
#include "tests/support/host_run.hpp"
#include "tuner/fuzz/device_run.hpp"
#include "tuner/fuzz/draw.hpp"

namespace attune::testing {
namespace {

constexpr int kSpecs = 12, kCasesPerSpec = 4;  // 48 problems
constexpr Inputs kInputs[] = {Inputs::kNormal,      Inputs::kLogitsTimes16, Inputs::kLogitsTimes64,
                              Inputs::kAllNegative, Inputs::kOutlierRow,    Inputs::kOutliers,
                              Inputs::kMeanOfV,     Inputs::kSaturated,     Inputs::kSubnormals};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

void check(const HostConfig& host, const AttentionCase& c, const std::string& trace) {
  const HostOutcome one = host.run(c, 1);
  const AttentionResult oracle = c.oracle();
  const Errors kernel = compare(one.result, oracle);
  const Errors twin = compare(c.twin(Arithmetic::kFp32), oracle);
  EXPECT_TRUE(kernel.finite) << trace;
  EXPECT_LE(kernel.max, 4 * twin.max + 1e-5) << trace;
  EXPECT_LE(kernel.lse_max, 1e-4) << trace;
  EXPECT_TRUE(one.gaps_intact && one.counters_clear) << trace;
  for (const int threads : {2, 3})
    for (const Against against : {Against::kEnd, Against::kBegin}) {
      const HostOutcome more = host.run(c, threads, against);
      EXPECT_TRUE(same_bits(more.result.o, one.result.o) &&
                  same_bits(more.result.lse, one.result.lse))
          << trace << ": " << threads << " threads give other bits than 1";
      EXPECT_TRUE(more.gaps_intact && more.counters_clear) << trace;
    }
}

TEST(ComputeAttack, RandomProblemsBetweenGuardPages) {
  std::string why;
  const CpuToolchain* toolchain = compiling_toolchain(&why);
  if (toolchain == nullptr) GTEST_SKIP() << why;
  const std::shared_ptr<const Device> device = open_device("cpu:3");
  const Arch arch = toolchain->host_arch();
  for (int seed = 0; seed < attack_count(kSpecs) && !::testing::Test::HasFailure(); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const KernelTemplate& t = seed % 9 == 8 ? reference_cpu() : prefill_cpu();
    const Problem base = random_problem(random, *device, t);
    const std::vector<Config> configs = t.space(spec_of(base), arch).enumerate();
    const Config config = configs.empty() ? Config() : configs[random() % configs.size()];
    const HostConfig host(*toolchain, arch, t, spec_of(base), config);
    // the last two are for 8 bits
    const size_t styles = std::size(kInputs) - (is_8_bit(base) ? 0 : 2);
    for (int i = 0; i < kCasesPerSpec; ++i) {
      Problem p = base;
      draw_lengths(random, config, &p);
      p.seqlen_q = std::min<int64_t>(p.seqlen_q, 90);  // the oracle is slow
      p.seqlen_kv = std::min<int64_t>(p.seqlen_kv, 200);
      const AttentionCase c(p, static_cast<Layout>(random() % 3), kInputs[random() % styles],
                            random());
      check(host, c, "seed " + std::to_string(seed) + " " + to_text(p) + " " + config.to_text());
    }
  }
}

// The guard pages work: one byte after the end and one before the begin cannot be accessed.
TEST(ComputeAttackDeathTest, GuardPagesGuard) {
  for (const size_t size : {1U, 16U, 4096U, 5000U}) {
    const GuardedBuffer end(size, 1, Against::kEnd), begin(size, 1, Against::kBegin);
    EXPECT_DEATH(end.as<volatile char>()[size] = 1, "");
    EXPECT_DEATH(begin.as<volatile char>()[-1] = 1, "");
    EXPECT_TRUE(end.intact() && begin.intact());
    if (size % 4096 != 0) begin.as<char>()[size] = 1;
    EXPECT_EQ(begin.intact(), size % 4096 == 0);
  }
}

}  // namespace
}  // namespace attune::testing
