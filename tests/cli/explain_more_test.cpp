// SPDX-License-Identifier: Apache-2.0
// Output of `attune explain` beyond a plan, on devices that are not here: occupancy by what limits
// it, and the nearest tuned key with what differs, for slices and clocks of one GPU too.
#include "tuner/cli/commands/explain_more.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/record_output.hpp"

namespace attune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string occupancy(const char* arch, int registers, unsigned threads, unsigned shared_bytes) {
  LaunchStep step;
  step.threads = threads;
  step.shared_bytes = shared_bytes;
  ImageInfo info;
  info.registers = registers;
  const auto found = occupancy_of(step, parse_arch(arch), info);
  return found ? fmt::format("{} {} {}", found->blocks, found->threads, found->limited_by) : "none";
}

// Limits are those of the CUDA programming guide: registers, shared memory and threads of a
// multiprocessor.
TEST(Occupancy, IsLimitedByTheScarcest) {
  EXPECT_EQ(occupancy("sm_90a", 168, 384, 98304), "1 384 registers");
  EXPECT_EQ(occupancy("sm_90a", 64, 128, 100 << 10), "2 256 shared memory");
  EXPECT_EQ(occupancy("sm_90a", 32, 128, 0), "16 2048 registers");
  EXPECT_EQ(occupancy("sm_90a", 24, 128, 0), "16 2048 threads");
  EXPECT_EQ(occupancy("sm_89", 24, 128, 0), "12 1536 threads");
  EXPECT_EQ(occupancy("sm_75", 24, 128, 0), "8 1024 threads");
  EXPECT_EQ(occupancy("sm_75", 32, 128, 32 << 10), "2 256 shared memory") << "nothing is reserved";
  EXPECT_EQ(occupancy("sm_80", 41, 128, 0), "10 1280 registers")
      << "registers come by eight a thread";
  EXPECT_EQ(occupancy("sm_80", -1, 128, 0), "none") << "registers are not known";
}

TEST(Busy, AMachineWithLessThanItsCoresLeftIsSaidToBe) {
  EXPECT_THAT(busy_text(12.04, 2, Target::kCpu),
              HasSubstr("this machine is busy (load average 12.0 on 2 cores)"));
  EXPECT_THAT(busy_text(12, 1, Target::kCuda), HasSubstr("on 1 core)"));
  EXPECT_EQ(busy_text(1.4, 2, Target::kCpu), "");
  EXPECT_NE(busy_text(1.6, 2, Target::kCpu), "") << "kernels want both cores";
  EXPECT_EQ(busy_text(1.6, 2, Target::kCuda), "") << "the host of a GPU wants one";
  EXPECT_EQ(busy_text(0, 0, Target::kCpu), "") << "the number of cores is not known";
}

TEST(UntestedGpu, IsAnyButHopper) {
  const auto text = [](const char* arch) {
    DeviceIdentity device;
    device.arch = arch;
    return untested_gpu_text(device);
  };
  EXPECT_EQ(text("sm_90"), "");
  EXPECT_EQ(text("cpu:znver4"), "");
  for (const char* arch : {"sm_75", "sm_80", "sm_89", "sm_100", "sm_120"})
    EXPECT_THAT(text(arch), HasSubstr(fmt::format("never on a GPU of arch {} ", arch)));
}

TEST(TimeText, ShowsTheIntervalAndSaysWhereItIsNoisy) {
  EXPECT_EQ(time_text({.median_us = 100, .lo_us = 99.5, .hi_us = 101}), "100.0 us ±1.0 %");
  EXPECT_EQ(time_text({.median_us = 2357.7, .lo_us = 2357.7, .hi_us = 3513.2}),
            "2.36 ms ±49.0 % noisy");
  EXPECT_EQ(time_text({}), "-");
  EXPECT_TRUE(timing_json({.median_us = 100, .lo_us = 60, .hi_us = 101}).at("noisy"));
}

class NearestKeyTest : public ::testing::Test {
 protected:
  static DeviceIdentity h200() {
    return {"sm_90", 132, 232448, 65536, 50 << 20, 6144, 3201000, "", "NVIDIA H200", "580.126"};
  }
  WinnerRecord winner(const DeviceIdentity& device) const {
    WinnerRecord row;
    const Arch arch = parse_arch("sm_90a");
    const KernelTemplate& best = *serving(spec_of(problem_), {arch}).best()->kernel_template;
    row.spec = spec_of(problem_);
    row.shape = shape_of(problem_);
    row.toolchain = {std::string(best.name()), template_digest(best), "nvrtc 13.0", ""};
    row.device = device;
    return row;
  }
  std::vector<std::string> differs(const WinnerRecord& row) const {
    return nearest_key(problem_, h200(), {row}).value().differs;
  }

  const Problem problem_ = parse_problem("dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=4096");
};

TEST_F(NearestKeyTest, AnotherDriverOrNameIsNoDifference) {
  DeviceIdentity other = h200();
  other.conditions = {"550.54", 500};
  other.name = "NVIDIA H200 NVL";
  EXPECT_THAT(differs(winner(other)), ElementsAre());
}

TEST_F(NearestKeyTest, ASliceOrAMemoryClockOfTheSameGpuIsNamed) {
  DeviceIdentity slice = h200();
  slice.slice = "1g.18gb";
  slice.sm_count = 16;
  EXPECT_THAT(
      differs(winner(slice)),
      ElementsAre(AllOf(HasSubstr("the device is NVIDIA H200 (16 multiprocessors"),
                        HasSubstr("; its slice is 1g.18gb, here none, sm_count is 16, here 132"))));
  DeviceIdentity slow = h200();
  slow.memory_clock_khz = 1593000;
  EXPECT_THAT(differs(winner(slow)),
              ElementsAre(HasSubstr("; its memory_clock_khz is 1593000, here 3201000")));
}

TEST_F(NearestKeyTest, AnotherGpuIsNamedAndAnOlderTemplateSaid) {
  DeviceIdentity other = h200();
  other.name = "NVIDIA GH200";
  other.memory_clock_khz = 2619000;
  WinnerRecord row = winner(other);
  row.toolchain.template_digest = "older";
  EXPECT_THAT(differs(row),
              ElementsAre(AllOf(HasSubstr("the device is NVIDIA GH200 ("), Not(HasSubstr("its"))),
                          HasSubstr("has changed since")));
}

// Chooses the key with the fewest differences, then the nearest shape.
TEST_F(NearestKeyTest, TheNearestIsTaken) {
  WinnerRecord far = winner(h200()), near = far, odd = far;
  far.shape = shape_of(parse_problem("dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=512"));
  near.shape = shape_of(parse_problem("dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=2048"));
  odd.spec.head_dim_qk = 64;
  odd.shape = shape_of(parse_problem("dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=4096"));
  const NearestKey found = nearest_key(problem_, h200(), {far, odd, near}).value();
  EXPECT_EQ(found.winner.shape, near.shape);
  EXPECT_THAT(found.differs, ElementsAre("seqlen is 2048, here 4096"));
  EXPECT_EQ(nearest_key(problem_, h200(), {}), std::nullopt);
}

TEST_F(NearestKeyTest, AnotherOpIsNotNear) {
  WinnerRecord other = winner(h200());
  other.spec.op = Op::kQuantise;
  EXPECT_EQ(nearest_key(problem_, h200(), {other}), std::nullopt);
  EXPECT_TRUE(nearest_key(problem_, h200(), {other, winner(h200())}).has_value());
}

}  // namespace
}  // namespace attune::cli
