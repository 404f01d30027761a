// SPDX-License-Identifier: Apache-2.0
// The engine over a fake sm_90 and the real templates: rungs, policies, falling to the next family,
// where images come from.
#include "runtime/engine/engine.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "generator/render/renderer.hpp"
#include "tests/runtime/engine_fixture.hpp"
#include "tests/runtime/image_key_of.hpp"

namespace attune {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST_F(EngineTest, AnUntunedProblemGetsTheDefaultConfig) {
  Engine engine = this->engine(options());
  const auto plan = engine.plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kDefaultConfig);
  EXPECT_EQ(plan->kernel_template,
            serving(spec_of(problem_), {parse_arch("sm_90a")}).best()->kernel_template);
  EXPECT_EQ(plan->arch.name(), "sm_90a");
  EXPECT_EQ(plan->image_from, "compiler fake 1.0");
  EXPECT_EQ(plan->expected_us, 0);
  EXPECT_EQ(engine.plan(problem_), plan) << "the second look-up must give the same plan";
  EXPECT_EQ(device_->compiler_.total(), 1);
}

TEST_F(EngineTest, ATunedShapeIsFoundExactly) {
  const WinnerRecord row = put_winner(problem_);
  const auto plan = engine(options()).plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kExact);
  EXPECT_EQ(plan->config, row.config);
  EXPECT_EQ(plan->expected_us, 90);
  EXPECT_THAT(plan->explain(), HasSubstr("exact: tuned for this shape: fastest by 10 %"));
}

// A winner measured with another driver or power limit serves, and explain() says so. A winner of a
// MIG slice, or measured at another memory clock, belongs to another device.
TEST_F(EngineTest, AWinnerOfAnotherDriverServesAndOneOfAnotherDeviceDoesNot) {
  WinnerRecord row = put_winner(problem_);
  row.timing.sm_clock_mhz = 1395;
  const auto put_for = [&](const DeviceIdentity& device) {
    Store store = Store::open(folder_ / "store.db", StoreMode::kReadWrite);
    store.put_winner({row.spec, row.shape, device, {"test"}}, row);
  };
  DeviceIdentity older = device_->identity();
  older.conditions = {"550.54", 500};
  put_for(older);
  const auto plan = engine(options()).plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kExact);
  EXPECT_THAT(plan->explain(),
              HasSubstr("; at 1395 MHz; with driver 550.54, now 580.1 and power limit 500 W, "
                        "now 700 W: re-time with `attune tune --refresh`"));
  std::filesystem::remove(folder_ / "store.db");
  DeviceIdentity slice = device_->identity(), slow = slice;
  slice.slice = "1g.18gb";
  slow.memory_clock_khz = slow.memory_clock_khz / 2 + 1;
  put_for(slice), put_for(slow);
  EXPECT_EQ(engine(options()).plan(problem_)->rung, Rung::kDefaultConfig);
}

// Problems that differ in one option of 8-bit operands have separate plans and winners.
TEST_F(EngineTest, EachOptionOf8BitOperandsHasASeparatePlanAndWinner) {
  const std::string base = "dtype=e4m3,head_dim=128,heads=32/8,batch=1,seqlen=4096";
  const Problem accurate = parse_problem(base);
  put_winner(accurate);
  Engine engine = this->engine(options());
  std::set<std::shared_ptr<const Plan>> plans{engine.plan(accurate)};
  EXPECT_EQ(engine.plan(accurate)->rung, Rung::kExact);
  for (const char* option : {",accuracy=fast", ",v_layout=transposed", ",scale_block_q=128",
                             ",scale_block_kv=128", ",dtype_kv=e5m2", ",dtype_o=fp16"}) {
    const auto plan = engine.plan(parse_problem(base + option));
    EXPECT_TRUE(plans.insert(plan).second) << option;
    EXPECT_EQ(plan->rung, Rung::kDefaultConfig) << option << ": a winner of another spec";
    EXPECT_EQ(engine.plan(parse_problem(base + option)), plan) << option;
  }
}

TEST_F(EngineTest, APinIsPreferredToTheTunedWinner) {
  put_winner(problem_);
  put_winner(problem_, true);
  EXPECT_EQ(engine(options()).plan(problem_)->rung, Rung::kPinned);
}

TEST_F(EngineTest, AWinnerOfANearbyShapeServesAndExplainSaysSo) {
  Problem twice = problem_;
  twice.seqlen_q = twice.seqlen_kv = 8192;
  put_winner(twice);
  const auto plan = engine(options()).plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kNearest);
  EXPECT_GT(plan->distance, 1);
  EXPECT_EQ(plan->expected_us, 0);
}

TEST_F(EngineTest, ReloadSeesWhatWasTunedMeanwhile) {
  Engine engine = this->engine(options());
  EXPECT_EQ(engine.plan(problem_)->rung, Rung::kDefaultConfig);
  put_winner(problem_);
  engine.reload();
  EXPECT_EQ(engine.plan(problem_)->rung, Rung::kExact);
}

TEST_F(EngineTest, ImagesAreKeptForTheNextProcess) {
  engine(options()).plan(problem_);
  device_->no_compiler = true;
  const auto plan = engine(options()).plan(problem_);
  EXPECT_EQ(plan->image_from, "store");
  EXPECT_EQ(plan->kernel->info().registers, 168);
}

TEST_F(EngineTest, AnImageThatDoesNotLoadIsMadeAgain) {
  const auto first = engine(options()).plan(problem_);
  const ImageKey key =
      testing::image_key_of(*first->kernel_template, spec_of(problem_), first->arch, first->config);
  KernelImage foreign;
  foreign.bytes = "for another device";
  Store::open(folder_ / "store.db", StoreMode::kReadWrite).put_image(key, foreign);
  EXPECT_EQ(engine(options()).plan(problem_)->image_from, "compiler fake 1.0");
}

// A store may hold images that a program with another emitter, or another formula for a constant,
// compiled.
TEST_F(EngineTest, AnImageOfAnotherSourceIsNotUsed) {
  const auto first = engine(options()).plan(problem_);
  ImageKey key =
      testing::image_key_of(*first->kernel_template, spec_of(problem_), first->arch, first->config);
  Store store = Store::open(folder_ / "store.db", StoreMode::kReadWrite);
  const KernelImage image = store.image(key).value();
  key.source_digest = "of another source";
  store.put_image(key, image);
  EXPECT_EQ(engine(options()).plan(problem_)->image_from, "compiler fake 1.0");
}

TEST_F(EngineTest, AnImageServesWhileItsSourceIsTheSame) {
  const auto first = engine(options()).plan(problem_);
  ImageKey key =
      testing::image_key_of(*first->kernel_template, spec_of(problem_), first->arch, first->config);
  Store store = Store::open(folder_ / "store.db", StoreMode::kReadWrite);
  const KernelImage image = store.image(key).value();
  std::filesystem::remove(folder_ / "store.db");
  key.toolchain.template_digest = "of a text that has changed elsewhere since";
  Store::open(folder_ / "store.db", StoreMode::kReadWrite).put_image(key, image);
  EXPECT_EQ(engine(options()).plan(problem_)->image_from, "store");
}

// After an upgrade that changes the text of a template but not its revision.
TEST_F(EngineTest, AWinnerOfAnotherTextRunsTheImageThatWasTimed) {
  WinnerRecord winner = put_winner(problem_);
  const auto first = engine(options()).plan(problem_);
  ASSERT_EQ(first->config, winner.config);
  ImageKey key =
      testing::image_key_of(*first->kernel_template, winner.spec, first->arch, winner.config);
  Store store = Store::open(folder_ / "store.db", StoreMode::kReadWrite);
  const KernelImage image = store.image(key).value();
  std::filesystem::remove(folder_ / "store.db");
  Store upgraded = Store::open(folder_ / "store.db", StoreMode::kReadWrite);
  key.source_digest = "of the text before";
  key.toolchain.template_digest = winner.toolchain.template_digest =
      fmt::format("r{}.of the text before", first->kernel_template->revision());
  upgraded.put_image(key, image);
  upgraded.put_winner({winner.spec, winner.shape, device_->identity(), {"test"}}, winner);
  const int compiled = device_->compiler_.total();
  const auto plan = engine(options()).plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kExact);
  EXPECT_EQ(plan->image_from, "store");
  EXPECT_EQ(device_->compiler_.total(), compiled);
  EXPECT_THAT(plan->why, HasSubstr("another text of the template"));
}

TEST_F(EngineTest, PolicyStrictRefusesWhatIsNotTuned) {
  EngineOptions strict = options();
  strict.policy = Policy::kStrict;
  std::string text;
  EXPECT_EQ(code_of([&] { engine(strict).plan(problem_); }, &text), ErrorCode::kNotTuned);
  EXPECT_THAT(text, HasSubstr("attune tune --problem " + to_text(problem_)));
  put_winner(problem_);
  EXPECT_EQ(engine(strict).plan(problem_)->rung, Rung::kExact);
}

TEST_F(EngineTest, NoJitRefusesToCompileAndUsesStoredImages) {
  EngineOptions no_jit = options();
  no_jit.may_compile = false;
  std::string text;
  EXPECT_EQ(code_of([&] { engine(no_jit).plan(problem_); }, &text), ErrorCode::kWouldCompile);
  EXPECT_THAT(text, HasSubstr("no_jit"));
  EXPECT_EQ(device_->compiler_.total(), 0);
  engine(options()).plan(problem_);
  EXPECT_EQ(engine(no_jit).plan(problem_)->image_from, "store");
}

class CountingTuner final : public ConfigSource {
 public:
  explicit CountingTuner(std::function<std::optional<WinnerRecord>()> answer)
      : answer_(std::move(answer)) {}
  std::optional<WinnerRecord> tune(const Problem&) override {
    ++calls;
    return answer_();
  }
  int calls = 0;

 private:
  std::function<std::optional<WinnerRecord>()> answer_;
};

TEST_F(EngineTest, TuneOnMissTunesOnce) {
  CountingTuner tuner([this] { return put_winner(problem_); });
  EngineOptions live = options();
  live.policy = Policy::kTuneOnMiss;
  live.config_source = &tuner;
  Engine engine = this->engine(live);
  EXPECT_EQ(engine.plan(problem_)->rung, Rung::kExact);
  engine.plan(problem_);
  EXPECT_EQ(tuner.calls, 1);
}

TEST_F(EngineTest, TuneOnMissGoesOnWhenTuningFindsNothing) {
  CountingTuner tuner([] { return std::nullopt; });
  EngineOptions live = options();
  live.policy = Policy::kTuneOnMiss;
  live.config_source = &tuner;
  EXPECT_EQ(engine(live).plan(problem_)->rung, Rung::kDefaultConfig);
}

TEST_F(EngineTest, AFamilyThatDoesNotCompileIsReportedAndTheNextOneServes) {
  const std::string best(
      serving(spec_of(problem_), {parse_arch("sm_90a")}).best()->kernel_template->name());
  device_->compiler_.refuse = [&](const Source& source) -> std::optional<std::string> {
    if (source.file_name.starts_with(best)) return "ptxas says no";
    return std::nullopt;
  };
  const auto plan = engine(options()).plan(problem_);
  EXPECT_NE(plan->kernel_template->name(), best);
  EXPECT_THAT(plan->passed_over, Contains(HasSubstr("ptxas says no")));
  EXPECT_THAT(plan->explain(), HasSubstr("ptxas says no"));
}

TEST_F(EngineTest, WithoutACompilerTheReasonComesThrough) {
  device_->no_compiler = true;
  std::string text;
  EXPECT_EQ(code_of([&] { engine(options()).plan(problem_); }, &text), ErrorCode::kCompile);
  EXPECT_EQ(text, "there is no compiler in this test");
}

TEST_F(EngineTest, ALayoutThatTmaRefusesGoesToAFamilyWithoutTensorMaps) {
  Operands repeated = contiguous_operands(problem_, nullptr, nullptr, nullptr, nullptr, nullptr);
  repeated.k.head_stride = repeated.v.head_stride = 0;
  Engine engine = this->engine(options());
  const auto contiguous = engine.plan(problem_);
  const auto plan = engine.plan(problem_, &repeated);
  ASSERT_FALSE(contiguous->launch.main().tensor_maps.empty());
  EXPECT_TRUE(plan->launch.main().tensor_maps.empty());
  EXPECT_THAT(plan->passed_over,
              Contains(HasSubstr("k.head_stride is 0; must be above 0 for TMA")));
}

TEST_F(EngineTest, RunRefusesOperandsThePlanWasNotMadeFor) {
  const auto plan = engine(options()).plan(problem_);
  char* const base = reinterpret_cast<char*>(0x10000);
  Operands operands = contiguous_operands(problem_, base, base, base, base, nullptr);
  operands.k.head_stride = 0;
  std::vector<char> memory(static_cast<size_t>(plan->workspace_bytes()) + 256);
  void* const workspace =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
  std::string text;
  EXPECT_EQ(
      code_of([&] { run(*plan, operands, workspace, plan->workspace_bytes(), nullptr); }, &text),
      ErrorCode::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("make the plan with these operands as its layout"));
  EXPECT_EQ(device_->seen->launches, 0);
}

TEST_F(EngineTest, RunFillsTheArguments) {
  const auto plan = engine(options()).plan(problem_);
  char* const base = reinterpret_cast<char*>(0x10000);
  alignas(16) float lse = 0;
  const Operands operands =
      contiguous_operands(problem_, base, base + 16, base + 32, base + 48, &lse);
  std::vector<char> memory(static_cast<size_t>(plan->workspace_bytes()) + 256, 1);
  void* const workspace =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
  init_workspace(*plan, workspace, plan->workspace_bytes(), nullptr);
  for (int64_t i = 0; i < plan->launch.zeroed_bytes; ++i)
    ASSERT_EQ(static_cast<char*>(workspace)[i], 0);
  run(*plan, operands, workspace, plan->workspace_bytes(), nullptr);
  ASSERT_EQ(device_->seen->launches, 1);
  const AttentionArgs& args = device_->seen->last_args;
  EXPECT_EQ(args.k.data, base + 16);
  EXPECT_EQ(args.k.row_stride, 8 * 128);
  EXPECT_EQ(args.lse_head_stride, 4096);
  EXPECT_EQ(args.lse_batch_stride, 4096 * 32);
  EXPECT_EQ(args.num_heads_kv, 8);
  EXPECT_EQ(device_->seen->last_plan.main().num_tiles, plan->launch.main().num_tiles);
  EXPECT_EQ(args.workspace, workspace);
  EXPECT_FLOAT_EQ(args.softmax_scale_log2, 1.44269504f / std::sqrt(128.0f));
}

TEST_F(EngineTest, RunPassesFactorsOf8BitOperands) {
  const Problem problem = parse_problem(
      "dtype=e4m3,head_dim=64,heads=4/2,batch=2,seqlen_q=5,seqlen_kv=100,scale_block_kv=32");
  Engine engine = this->engine(options());
  const auto plan = engine.plan(problem);
  alignas(256) static char memory[1 << 20];
  alignas(4) static float factors[64];
  Operands operands =
      contiguous_operands(problem, memory, memory + 4096, memory + 65536, memory + 131072, nullptr);
  operands.q_scale = {factors, 2, 1, 0, 2};
  operands.v_scale = {factors + 8, 8, 4, 1, 1};
  std::vector<char> workspace(static_cast<size_t>(plan->workspace_bytes()) + 256);
  char* aligned = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256);
  run(*plan, operands, aligned, plan->workspace_bytes(), nullptr);
  const KernelArguments& args = device_->seen->last_args;
  EXPECT_EQ(args.scales.q_scale.data, factors);
  EXPECT_EQ(args.scales.q_scale.heads_per_scale, 2);
  EXPECT_EQ(args.scales.k_scale.data, nullptr);
  EXPECT_EQ(args.scales.v_scale.data, factors + 8);
  EXPECT_EQ(args.scales.v_scale.batch_stride, 8);
  EXPECT_EQ(args.scales.v_scale.head_stride, 4);
  EXPECT_EQ(args.scales.v_scale.block_stride, 1);
  EXPECT_EQ(args.scales.o_scale.data, nullptr);
}

TEST_F(EngineTest, WithoutOutputElementsNothingIsLaunched) {
  Problem empty = problem_;
  empty.seqlen_q = 0;
  const auto plan = engine(options()).plan(empty);
  std::vector<char> memory(static_cast<size_t>(plan->workspace_bytes()) + 256);
  void* const workspace =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
  char* const base = reinterpret_cast<char*>(0x10000);
  run(*plan, contiguous_operands(empty, nullptr, base, base, nullptr, nullptr), workspace,
      plan->workspace_bytes(), nullptr);
  EXPECT_EQ(device_->seen->launches, 0);
}

// For rows that see no key, a kernel may still visit a block of keys and read a capture's first
// element.
TEST_F(EngineTest, CapturesWithoutElementsAreReadFromQ) {
  const Problem none = parse_problem(
      "dtype=bf16,head_dim=64,heads=4,batch=2,seqlen_q=5,seqlen_kv=0,bias=bf16,key_lengths=1");
  const auto plan = engine(options()).plan(none);
  std::vector<char> memory(static_cast<size_t>(plan->workspace_bytes()) + 256);
  void* const workspace =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
  char* const base = reinterpret_cast<char*>(0x10000);
  Operands operands = contiguous_operands(none, base, nullptr, nullptr, base + 0x10000, nullptr);
  ScoreOperands scores;
  ASSERT_EQ(plan->scores.captures.back().name, "bias");
  scores.add({base + 0x20000, {1}, {}});  // key_lengths
  scores.add({nullptr, {20, 5, 1, 1}, {}});
  operands.scores = &scores;
  run(*plan, operands, workspace, plan->workspace_bytes(), nullptr);
  EXPECT_EQ(device_->seen->launches, 1);
  const ScoreArgs& args = device_->seen->last_args.scores;
  EXPECT_EQ(args.captures[0].data, base + 0x20000) << "a capture with elements stays";
  EXPECT_EQ(args.captures[0].strides[0], 1);
  EXPECT_EQ(args.captures[1].data, base);
  for (const long long stride : args.captures[1].strides) EXPECT_EQ(stride, 0);
}

TEST_F(EngineTest, PlansKeepTheirKernelAliveWithoutTheEngine) {
  std::shared_ptr<const Plan> plan = engine(options()).plan(problem_);
  EXPECT_EQ(device_->seen->live_kernels, 1);
  plan.reset();
  EXPECT_EQ(device_->seen->live_kernels, 0);
}

TEST_F(EngineTest, CheckNamesEveryTemplate) {
  const auto answers = engine(options()).check(problem_);
  EXPECT_EQ(answers.size(), all_templates().size());
  for (const auto& [name, reason] : answers)
    if (name == "prefill_cpu") {
      EXPECT_TRUE(reason) << "a CPU template cannot serve a GPU";
    }
}

TEST_F(EngineTest, CheckReportsTheRefusalForTheBestArch) {
  const Problem problem = parse_problem("dtype=fp32,head_dim=128,heads=8,seqlen=1024");
  for (const auto& [name, reason] : engine(options()).check(problem))
    if (name == "prefill_sm90") {
      EXPECT_EQ(reason, "dtype_q is fp32; this template serves bf16 and fp16")
          << "and not: sm_90 is not sm_90a";
    }
}

TEST_F(EngineTest, PlanWithTakesTheCallersConfigOrRefusesIt) {
  Engine engine = this->engine(options());
  const KernelTemplate& best =
      *serving(spec_of(problem_), {parse_arch("sm_90a")}).best()->kernel_template;
  const Config config =
      best.default_config(spec_of(problem_), parse_arch("sm_90a"), shape_of(problem_),
                          typical_device(parse_arch("sm_90a")).facts);
  EXPECT_EQ(engine.plan_with(problem_, best, config)->config, config);
  Config illegal = config;
  illegal.set(config.knobs().front().first, 7);
  EXPECT_EQ(code_of([&] { engine.plan_with(problem_, best, illegal); }),
            ErrorCode::kInvalidArgument);
}

TEST_F(EngineTest, AnUnusableStoreDoesNotFailPlanning) {
  EngineOptions blocked = options();
  blocked.user_store = "/proc/nowhere/store.db";
  EXPECT_EQ(engine(blocked).plan(problem_)->rung, Rung::kDefaultConfig);
}

TEST_F(EngineTest, ChooseCompilesNothing) {
  put_winner(problem_);
  const Plan plan = engine(options()).choose(problem_);
  EXPECT_EQ(plan.rung, Rung::kExact);
  EXPECT_FALSE(plan.kernel);
  EXPECT_EQ(device_->compiler_.total(), 0);
}

}  // namespace
}  // namespace attune
