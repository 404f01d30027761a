// SPDX-License-Identifier: Apache-2.0
// The whole loop on the real CPU target: kernels are written, compiled by clang in this process,
// checked and timed in a child of the program `attune`, stored, and found by the engine.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/system/error.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine.hpp"
#include "tuner/measure/device_backend.hpp"
#include "tuner/measure/isolated_backend.hpp"
#include "tuner/measure/verify.hpp"
#include "tuner/oracles/attention_regions.hpp"
#include "tuner/search/live_tuner.hpp"
#include "tuner/search/tune_loop.hpp"

namespace attune {
namespace {

class TuneCpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (compiling_toolchain(&why) == nullptr) GTEST_SKIP() << "the CPU target is not here: " << why;
    std::filesystem::create_directory(folder_);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    device_ = open_device("cpu");
  }
  ~TuneCpuTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("attune_tune_cpu_" + std::to_string(::getpid()));
  std::shared_ptr<const Device> device_;
};

TEST_F(TuneCpuTest, TunesThroughAChildAndTheEngineTakesTheWinner) {
  const Problem problem =
      parse_problem("dtype=fp32,head_dim=32,heads=2/1,seqlen=96,mask=causal_bottom_right");
  const DeviceTarget target(device_);
  IsolatedBackend backend({ATTUNE_PROGRAM, "worker", "cpu"});
  TuneReport report;
  {
    Store store = Store::open(folder_ / "store.db", StoreMode::kReadWrite);
    report = tune(target, backend, &store, {problem}, {.effort = Effort::kQuick, .budget_s = 90});
  }
  ASSERT_EQ(report.shapes.size(), 1U);
  const ShapeReport& shape = report.shapes[0];
  ASSERT_TRUE(shape.winner) << shape.note;
  EXPECT_TRUE(report.stored);
  EXPECT_GE(shape.trials.size(), 4U);
  EXPECT_EQ(backend.num_children(), 1);
  for (const TrialRecord& trial : shape.trials) {
    EXPECT_EQ(trial.status, TrialStatus::kOk) << trial.config.to_text() << ": " << trial.reason;
    EXPECT_GT(trial.error_mean, 0) << "an oracle that shares the kernel's rounding is no oracle";
    EXPECT_LE(trial.error_max, 1);
  }

  EngineOptions options;
  options.user_store = folder_ / "store.db";
  options.may_compile = false;
  Engine engine(device_, options);
  const std::shared_ptr<const Plan> plan = engine.plan(problem);
  EXPECT_EQ(plan->rung, Rung::kExact);
  EXPECT_EQ(plan->config, shape.winner->config);
  EXPECT_EQ(plan->image_from, "store");
}

TEST_F(TuneCpuTest, AMissIsTunedOnceAndTakenByTheEngine) {
  const Problem problem =
      parse_problem("dtype=fp32,head_dim=32,heads=2/1,seqlen=80,mask=causal_bottom_right");
  LiveTuner tuner(
      device_,
      {folder_ / "store.db", Effort::kQuick, 3, folder_, {ATTUNE_PROGRAM, "worker", "cpu"}});
  EngineOptions options;
  options.user_store = folder_ / "store.db";
  options.policy = Policy::kTuneOnMiss;
  options.config_source = &tuner;
  Engine engine(device_, options);
  EXPECT_EQ(engine.plan(problem)->rung, Rung::kExact);
  const Store store = Store::open(folder_ / "store.db", StoreMode::kReadOnly);
  const std::vector<WinnerRecord> winners = store.load_winners(device_->identity());
  ASSERT_EQ(winners.size(), 1U);
  Engine second(device_, options);
  EXPECT_EQ(second.plan(problem)->winner->created, winners[0].created);
}

// A kernel made for another mask gives wrong results: the check must refuse it.
TEST_F(TuneCpuTest, AWrongKernelIsRefused) {
  const Problem problem =
      parse_problem("dtype=fp32,head_dim=32,heads=2/1,seqlen=96,mask=causal_bottom_right");
  const DeviceTarget target(device_);
  const KernelSpec spec = spec_of(problem);
  KernelSpec other = spec;
  other.mask = Mask::kNone;
  const Family family = target.families(spec).at(0);
  const TuneCandidate candidate{
      family,
      family.kernel_template->default_config(spec, family.arch, shape_of(problem),
                                             typical_device(family.arch).facts),
      true};
  const KernelSpec oracle_spec = check_plan(problem, check_flops_limit(true)).spec;
  const TuneCandidate reference = target.reference(oracle_spec).value();
  const auto request = [&](const TuneCandidate& c, const KernelSpec& s) {
    return KernelRequest{std::string(c.family.kernel_template->name()), c.config,
                         target.make(s, c)};
  };
  DeviceBackend backend(device_);
  backend.open({problem, 1, request(reference, oracle_spec)});
  const Prepared right = backend.prepare(0, request(candidate, spec));
  EXPECT_FALSE(right.fault) << right.fault->reason;
  EXPECT_GT(right.estimate_us, 0);
  const Prepared wrong = backend.prepare(1, request(candidate, other));
  ASSERT_TRUE(wrong.fault);
  EXPECT_EQ(wrong.fault->status, TrialStatus::kWrongResult);
  EXPECT_NE(wrong.fault->reason.find("expected"), std::string::npos) << wrong.fault->reason;
  EXPECT_EQ(backend.round({0}, kShortSampleUs).samples.size(), 1U);
}

// The check must also refuse a kernel that uses factors of other blocks, or V in another layout: in
// the whole problem and in slices of it.
TEST_F(TuneCpuTest, AWrongKernelOf8BitsIsRefused) {
  const DeviceTarget target(device_);
  for (const char* lengths : {"seqlen_q=90,seqlen_kv=200", "seqlen_q=1300,seqlen_kv=2100"}) {
    const Problem problem = parse_problem(
        std::string("dtype=e4m3,head_dim=32,heads=4/2,batch=2,scale_block_q=48,scale_block_kv=64,"
                    "v_layout=transposed,accuracy=fast,") +
        lengths);
    const KernelSpec spec = spec_of(problem);
    const Family family = target.families(spec).at(0);
    const TuneCandidate candidate{
        family,
        family.kernel_template->default_config(spec, family.arch, shape_of(problem),
                                               typical_device(family.arch).facts),
        true};
    const CheckPlan plan = check_plan(problem, check_flops_limit(true));
    const TuneCandidate reference = target.reference(plan.spec).value();
    const auto request = [&](const TuneCandidate& c, const KernelSpec& s) {
      return KernelRequest{std::string(c.family.kernel_template->name()), c.config,
                           target.make(s, c)};
    };
    DeviceBackend backend(device_);
    backend.open({problem, 1, request(reference, plan.spec)});
    const Prepared right = backend.prepare(0, request(candidate, spec));
    EXPECT_FALSE(right.fault) << lengths << ": " << right.fault->reason;
    const auto expect_wrong = [&](const auto& change) {
      KernelSpec other = spec;
      change(&other.fp8);
      const Prepared wrong = backend.prepare(1, request(candidate, other));
      ASSERT_TRUE(wrong.fault) << lengths << ": " << to_text(other);
      EXPECT_EQ(wrong.fault->status, TrialStatus::kWrongResult);
    };
    expect_wrong([](Fp8Options* fp8) { fp8->scale_block_q = 0; });
    expect_wrong([](Fp8Options* fp8) { fp8->scale_block_q = 64; });
    expect_wrong([](Fp8Options* fp8) { fp8->scale_block_kv = 0; });
    expect_wrong([](Fp8Options* fp8) { fp8->v_layout = VLayout::kRows; });
  }
}

// The tuner opens its problems by turns. Results that the host computed are kept, and must still
// hold when other problems had the inputs' memory, of other types and sizes.
TEST_F(TuneCpuTest, ResultsOfTheHostHoldAfterOtherProblems) {
  const DeviceTarget target(device_);
  const std::string decode = "op=attention_kvcache,head_dim=32,heads=4/2,batch=3,seqlen_q=1,";
  const Problem first = parse_problem(decode + "dtype=fp32,seqlen_kv=40,page_size=8");
  const Problem others[] = {parse_problem(decode + "dtype=fp32,seqlen_kv=500"),
                            parse_problem(decode + "dtype=bf16,seqlen_kv=40,page_size=8"),
                            parse_problem("op=append_kv,dtype=fp32,head_dim=32,heads=4/2,batch=3,"
                                          "seqlen_q=2,seqlen_kv=40,page_size=8")};
  DeviceBackend backend(device_);
  const auto prepared = [&](const Problem& problem) {
    const KernelSpec spec = spec_of(problem);
    const Family family = target.families(spec).at(0);
    const Config config = family.kernel_template->default_config(
        spec, family.arch, shape_of(problem), device_->facts());
    backend.open({problem, 1, std::nullopt});
    return backend.prepare(0, {std::string(family.kernel_template->name()), config,
                               target.make(spec, {family, config, true})});
  };
  const Prepared before = prepared(first);
  ASSERT_FALSE(before.fault) << before.fault->reason;
  EXPECT_GT(before.error_max, 0);
  for (const Problem& other : others) {
    const Prepared found = prepared(other);
    EXPECT_FALSE(found.fault) << to_text(other) << ": " << found.fault->reason;
    const Prepared again = prepared(first);
    ASSERT_FALSE(again.fault) << again.fault->reason;
    EXPECT_EQ(again.error_max, before.error_max);
    EXPECT_EQ(again.error_mean, before.error_mean);
  }
}

// An engine writes a step's rows by their places. By lists, a problem of one page would write no
// more than that page.
TEST_F(TuneCpuTest, MeasuredAppendsWriteAllTheirRows) {
  const std::string append = "op=append_kv,dtype=fp32,head_dim=32,heads=2,batch=1,packed_q=1,";
  Inputs inputs(*device_, 5);
  inputs.open(parse_problem(append + "seqlen_q=100,seqlen_kv=16,page_size=16,num_pages=10"));
  const AppendArgs* const places = inputs.set(0).append;
  ASSERT_NE(places, nullptr);
  EXPECT_EQ(places->num_rows, 100);
  EXPECT_EQ(inputs.set(0).cache->page_table, nullptr) << "a call gives one of the two";
  const auto* const slots = static_cast<const int*>(places->row_slots);
  const std::set<int> all(slots, slots + 100);
  EXPECT_EQ(all.size(), 100U);
  EXPECT_LT(*all.rbegin(), 160);
  EXPECT_GE(*all.begin(), 0);
  EXPECT_EQ(inputs.poisoned().append, nullptr) << "checked calls go by lists, then by places";
  inputs.open(parse_problem(append + "seqlen_q=4,seqlen_kv=16,page_size=16"));
  EXPECT_EQ(inputs.set(0).append, nullptr);
}

TEST_F(TuneCpuTest, InputsOf8BitsHaveFactorsThatDiffer) {
  const Problem problem = parse_problem(
      "dtype=e4m3,dtype_kv=e5m2,head_dim=32,heads=4/2,batch=2,seqlen=100,"
      "scale_block_kv=48");
  Inputs inputs(*device_, 5);
  inputs.open(problem);
  const Operands& set = inputs.set(0);
  EXPECT_EQ(set.q_scale.heads_per_scale, 2);
  EXPECT_EQ(set.q_scale.block_stride, 0);
  EXPECT_EQ(set.v_scale.head_stride, 3);
  EXPECT_EQ(set.v_scale.batch_stride, 6);
  std::set<float> factors;
  for (int i = 0; i < 12; ++i) factors.insert({set.k_scale.data[i], set.v_scale.data[i]});
  for (int i = 0; i < 4; ++i) factors.insert(set.q_scale.data[i]);
  EXPECT_EQ(factors.size(), 28U);
  EXPECT_GE(*factors.begin(), 0.7F);
  EXPECT_LE(*factors.rbegin(), 1.4F);
  double squares = 0;
  for (int64_t i = 0; i < 6400; ++i)
    squares += std::pow(load_element(Dtype::kE5m2, set.k.data, i), 2) / 6400;
  EXPECT_NEAR(squares, 1, 0.1) << "k is filled as the dtype that it has";
}

TEST_F(TuneCpuTest, InputsAreRandomAndOutputsPoisoned) {
  Problem problem = parse_problem("dtype=bf16,head_dim=32,heads=2/1,seqlen=96");
  Inputs inputs(*device_, 5);
  inputs.open(problem);
  EXPECT_GE(inputs.num_sets(), 2);
  const auto* q = static_cast<const uint16_t*>(inputs.set(0).q.data);
  const auto* q1 = static_cast<const uint16_t*>(inputs.set(1).q.data);
  int zeros = 0, equal = 0;
  constexpr int kCount = 96 * 2 * 32;
  for (int i = 0; i < kCount; ++i) {
    zeros += q[i] == 0;
    equal += q[i] == q1[i];
  }
  EXPECT_EQ(zeros, 0);
  EXPECT_LT(equal, kCount / 20);
  const Operands poisoned = inputs.poisoned();
  for (int i = 0; i < kCount; ++i)
    ASSERT_EQ(static_cast<const uint16_t*>(poisoned.o.data)[i], 0xffff);
  ASSERT_NE(poisoned.lse, nullptr);
}

TEST(Inputs, SetsExceedTwiceTheCache) {
  EXPECT_GT(num_rotating_sets(4 << 20, 50 << 20) * int64_t{4 << 20}, 2 * int64_t{50 << 20});
  EXPECT_EQ(num_rotating_sets(int64_t{200} << 20, 50 << 20), 1);
  EXPECT_EQ(num_rotating_sets(1, 1 << 20), 1024);
}

TEST(Inputs, SameSeedSameValues) {
  EXPECT_EQ(normal_values(Dtype::kBf16, 100, 3), normal_values(Dtype::kBf16, 100, 3));
  EXPECT_NE(normal_values(Dtype::kBf16, 100, 3), normal_values(Dtype::kBf16, 100, 4));
}

}  // namespace
}  // namespace attune
