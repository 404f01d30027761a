// SPDX-License-Identifier: Apache-2.0
// Engines that run from a pin file: its kernels are run or refused, stores do not matter, and equal
// digests mean equal choices.
#include "runtime/engine/pinned_run.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/runtime/engine_fixture.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

class PinnedRunTest : public EngineTest {
 protected:
  // Pins the store's winners, and returns options that use only that pin file.
  EngineOptions pinned(const std::function<void(PinFile*)>& change = nullptr) const {
    PinFile pins = pins_of(Store::open(folder_ / "store.db", StoreMode::kReadOnly).all_winners());
    if (change) change(&pins);
    return with_text(pins.text());
  }
  EngineOptions with_text(const std::string& text) const {
    std::ofstream(folder_ / "site.pin") << text;
    EngineOptions chosen = options();
    chosen.pin = folder_ / "site.pin";
    return chosen;
  }
  Problem longer() const {
    Problem problem = problem_;
    problem.seqlen_q = problem.seqlen_kv = 8192;
    return problem;
  }
};

TEST_F(PinnedRunTest, PinnedKernelsAreRun) {
  const WinnerRecord row = put_winner(problem_);
  const EngineOptions chosen = pinned();
  std::filesystem::remove(folder_ / "store.db");
  Engine engine = this->engine(chosen);
  const auto plan = engine.plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kPinned);
  EXPECT_EQ(plan->config, row.config);
  EXPECT_EQ(plan->expected_us, 0) << "a pin file knows no times";
  EXPECT_THAT(plan->explain(), HasSubstr("a pin file has no times"));
  EXPECT_THAT(plan->warnings, ::testing::IsEmpty());
  const auto other = engine.plan(longer());
  EXPECT_EQ(other->rung, Rung::kNearest) << "from the pin, by the ladder's rule";
  EXPECT_THAT(other->warnings, ::testing::Contains(::testing::AllOf(
                                   HasSubstr("site.pin does not name "),
                                   HasSubstr("rung \"nearest\" chooses the kernel"))));
}

// The first reload opens the old file, which is long, and is still parsing it when the second
// reload reads the new file.
TEST_F(PinnedRunTest, TheLaterOfTwoConcurrentReloadsWins) {
  put_winner(problem_);
  const EngineOptions chosen = pinned([](PinFile* pins) {
    const Pin one = pins->pins.at(0);
    for (int64_t batch = 2; batch < 3000; ++batch) {
      pins->pins.push_back(one);
      pins->pins.back().shape.batch = batch;
    }
  });
  Engine engine = this->engine(chosen);
  std::thread first([&] { engine.reload(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::filesystem::remove(chosen.pin);
  put_winner(longer());
  pinned();
  std::thread second([&] { engine.reload(); });
  first.join();
  second.join();
  EXPECT_EQ(engine.pin_digest(), this->engine(chosen).pin_digest());
}

TEST_F(PinnedRunTest, APinFileOverridesStores) {
  put_winner(longer());
  const EngineOptions chosen = pinned();
  put_winner(problem_);
  const auto plan = engine(chosen).plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kNearest);
  put_winner(longer(), true);  // a pin of the store
  EXPECT_EQ(engine(chosen).plan(longer())->config, engine(chosen).plan(problem_)->config);
}

TEST_F(PinnedRunTest, APinThatCannotRunIsRefused) {
  put_winner(problem_);
  std::string text;
  const EngineOptions stale = pinned([](PinFile* pins) { pins->pins[0].template_digest = "old"; });
  EXPECT_EQ(code_of([&] { engine(stale); }, &text), ErrorCode::kNotTuned);
  EXPECT_THAT(text, HasSubstr("which has changed since: tune and pin again"));
  const EngineOptions unknown = pinned([](PinFile* pins) { pins->pins[0].template_name = "none"; });
  EXPECT_EQ(code_of([&] { engine(unknown); }, &text), ErrorCode::kNotTuned);
  EXPECT_THAT(text, HasSubstr("is pinned to none, which this version of attune does not have"));
  const EngineOptions illegal = pinned([](PinFile* pins) {
    pins->pins[0].config = Config({{"block_m", 7}});
  });
  EXPECT_EQ(code_of([&] { engine(illegal).plan(problem_); }, &text), ErrorCode::kNotTuned);
  EXPECT_THAT(text, HasSubstr("with block_m=7, which cannot run here: "));
  EngineOptions no_jit = pinned();
  no_jit.may_compile = false;
  EXPECT_EQ(code_of([&] { engine(no_jit).plan(problem_); }, &text), ErrorCode::kWouldCompile);
}

TEST_F(PinnedRunTest, PinsOfOtherDevicesAreIgnored) {
  put_winner(problem_);
  const EngineOptions chosen = pinned([](PinFile* pins) {
    pins->pins[0].device_digest = "another";
    pins->pins[0].template_digest = "old";  // its faults are ignored too
  });
  EXPECT_EQ(engine(chosen).plan(problem_)->rung, Rung::kDefaultConfig);
}

TEST_F(PinnedRunTest, AFileThatCannotBeReadIsRefused) {
  EngineOptions chosen = options();
  chosen.pin = folder_ / "none.pin";
  EXPECT_EQ(code_of([&] { engine(chosen); }), ErrorCode::kIo);
  chosen.pin = folder_.path();
  EXPECT_EQ(code_of([&] { engine(chosen); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([&] { engine(with_text("nonsense\n")); }), ErrorCode::kInvalidArgument);
}

TEST_F(PinnedRunTest, EqualChoicesHaveEqualDigests) {
  const auto empty = engine(options()).pin_digest();
  put_winner(problem_);
  const auto by_store = engine(options()).pin_digest();
  EXPECT_NE(by_store, empty);
  EXPECT_EQ(engine(pinned()).pin_digest(), by_store) << "the pin of this store chooses as it does";
  put_winner(longer());
  EXPECT_NE(engine(options()).pin_digest(), by_store);
  Engine engine = this->engine(pinned());
  const auto before = engine.pin_digest();
  pinned([](PinFile* pins) { pins->pins.pop_back(); });
  EXPECT_EQ(engine.pin_digest(), before);
  engine.reload();
  EXPECT_NE(engine.pin_digest(), before);
}

TEST_F(PinnedRunTest, LayersBelowTheUsersStoreAreOnlyRead) {
  put_winner(problem_);
  std::filesystem::create_directory(folder_ / "site");
  std::filesystem::permissions(folder_ / "site", std::filesystem::perms::owner_all);
  std::filesystem::rename(folder_ / "store.db", folder_ / "site/store.db");
  EngineOptions chosen = options();
  chosen.more_stores = {folder_ / "site/store.db"};
  const auto bytes = std::filesystem::file_size(folder_ / "site/store.db");
  const auto written = std::filesystem::last_write_time(folder_ / "site/store.db");
  EXPECT_EQ(engine(chosen).plan(problem_)->rung, Rung::kExact);
  EXPECT_EQ(std::filesystem::file_size(folder_ / "site/store.db"), bytes);
  EXPECT_EQ(std::filesystem::last_write_time(folder_ / "site/store.db"), written);
  EXPECT_EQ(Store::open(folder_ / "store.db", StoreMode::kReadOnly).stats().images, 1)
      << "what was compiled goes to the user's store";
}

}  // namespace
}  // namespace attune
