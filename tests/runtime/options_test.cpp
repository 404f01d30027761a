// SPDX-License-Identifier: Apache-2.0
// Values of environment variables, and the capture file.
#include "runtime/engine/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <thread>

#include "generator/core/system/error.hpp"
#include "runtime/engine/capture.hpp"
#include "runtime/engine/engine.hpp"
#include "tests/runtime/fake_device.hpp"
#include "tests/runtime/temporary_folder.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

class OptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"ATTUNE_STORE", "ATTUNE_BUNDLE", "ATTUNE_POLICY", "ATTUNE_NO_JIT",
                             "ATTUNE_CAPTURE", "ATTUNE_LOG", "ATTUNE_CHECK_WORKSPACE"})
      unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static std::string refusal() {
    return testing::error_text([&] { options_from_environment(); });
  }
};

TEST_F(OptionsTest, NothingSetGivesTheDefaults) {
  const Options options = options_from_environment();
  EXPECT_TRUE(options.engine.use_store && options.engine.may_compile);
  EXPECT_EQ(options.engine.policy, Policy::kDefault);
  EXPECT_FALSE(options.log_level);
}

TEST_F(OptionsTest, EveryVariableIsRead) {
  setenv("ATTUNE_STORE", "/a/store.db", 1);
  setenv("ATTUNE_BUNDLE", "/b:/c", 1);
  setenv("ATTUNE_POLICY", "strict", 1);
  setenv("ATTUNE_NO_JIT", "1", 1);
  setenv("ATTUNE_CAPTURE", "/d", 1);
  setenv("ATTUNE_LOG", "warning", 1);
  setenv("ATTUNE_CHECK_WORKSPACE", "1", 1);
  const Options options = options_from_environment();
  EXPECT_EQ(options.engine.user_store, "/a/store.db");
  EXPECT_THAT(options.engine.bundles, ::testing::ElementsAre("/b", "/c"));
  EXPECT_EQ(options.engine.policy, Policy::kStrict);
  EXPECT_FALSE(options.engine.may_compile);
  EXPECT_EQ(options.engine.capture_file, "/d");
  EXPECT_EQ(options.log_level, LogLevel::kWarning);
  EXPECT_TRUE(options.engine.check_workspace);
}

// `attune doctor` shows the table; a variable that is read but not in the table would be missing.
TEST(EnvironmentVariables, TheTableHoldsEveryVariableThatIsRead) {
  const std::filesystem::path root = ATTUNE_ROOT;
  const std::regex read("[a-z]\\(\"(ATTUNE_[A-Z_]+)\"");
  std::set<std::string> found, listed;
  for (const char* folder : {"generator", "cache", "runtime", "tuner"})
    for (const auto& file : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (file.path().extension() != ".cpp" && file.path().extension() != ".py") continue;
      std::ifstream in(file.path());
      const std::string text(std::istreambuf_iterator<char>(in), {});
      for (std::sregex_iterator at(text.begin(), text.end(), read), end; at != end; ++at)
        found.insert((*at)[1]);
    }
  for (const EnvironmentVariable& variable : kEnvironmentVariables) listed.insert(variable.name);
  EXPECT_EQ(found, listed);
}

TEST_F(OptionsTest, AnEmptyStoreMeansNone) {
  setenv("ATTUNE_STORE", "", 1);
  EXPECT_FALSE(options_from_environment().engine.use_store);
}

TEST_F(OptionsTest, WrongWordsAreNamed) {
  setenv("ATTUNE_POLICY", "fastest", 1);
  EXPECT_THAT(refusal(), HasSubstr("ATTUNE_POLICY is \"fastest\"; must be default, nearest"));
  setenv("ATTUNE_POLICY", "tune_on_miss", 1);  // needs the tuner, which the library does not hold
  EXPECT_THAT(refusal(), HasSubstr("is \"tune_on_miss\"; must be default, nearest or strict"));
  unsetenv("ATTUNE_POLICY");
  setenv("ATTUNE_NO_JIT", "yes", 1);
  EXPECT_THAT(refusal(), HasSubstr("ATTUNE_NO_JIT is \"yes\"; must be 0 or 1"));
  unsetenv("ATTUNE_NO_JIT");
  setenv("ATTUNE_LOG", "loud", 1);
  EXPECT_THAT(refusal(), HasSubstr("ATTUNE_LOG is \"loud\""));
}

// Returns the answer of `work` in a child that `change` changed first.
std::string in_child(const std::function<bool()>& change,
                     const std::function<std::string()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string answer = change() ? work() : "not changed";
    _exit(write(ends[1], answer.data(), answer.size()) < 0);
  }
  close(ends[1]);
  char buffer[4096];
  const ssize_t size = read(ends[0], buffer, sizeof buffer);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return std::string(buffer, size > 0 ? static_cast<size_t>(size) : 0);
}

TEST_F(OptionsTest, TheDefaultStoreIsBelowAnAbsoluteFolder) {
  const auto with = [](const char* home, const char* cache) {
    return in_child(
        [&] {
          home ? setenv("HOME", home, 1) : unsetenv("HOME");
          cache ? setenv("XDG_CACHE_HOME", cache, 1) : unsetenv("XDG_CACHE_HOME");
          return true;
        },
        [] { return default_store_path().string(); });
  };
  EXPECT_EQ(with("/h", "/c"), "/c/attune/store.db");
  EXPECT_EQ(with("/h", "c"), "/h/.cache/attune/store.db");
  EXPECT_EQ(with("/h", nullptr), "/h/.cache/attune/store.db");
  const struct passwd* user = getpwuid(geteuid());
  const std::string known =
      user ? std::string(user->pw_dir) + "/.cache/attune/store.db" : std::string();
  EXPECT_EQ(with(nullptr, nullptr), known) << "never /tmp, which is everybody's";
  EXPECT_EQ(with("h", "c"), known);
}

TEST_F(OptionsTest, WithoutAHomeThereIsNoDefaultStore) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: becoming an unknown user needs root";
  const auto unknown = [] {
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    return setuid(543210987) == 0;
  };
  EXPECT_EQ(in_child(unknown, [] { return default_store_path().string(); }), "");
  EXPECT_THAT(in_child(unknown,
                       []() -> std::string {
                         try {
                           return store_path_or_default("").string();
                         } catch (const Error& error) {
                           return error.what();
                         }
                       }),
              HasSubstr("no home directory is known"));
  EXPECT_EQ(in_child(unknown,
                     [] {
                       EngineOptions options;
                       Engine engine(std::make_shared<testing::FakeDevice>(), options);
                       return engine
                           .plan(parse_problem("dtype=bf16,head_dim=64,heads=4,seqlen=128"))
                           ->image_from.substr(0, 8);
                     }),
            "compiler");
}

TEST(Capture, WritesEachProblemOnceAsJson) {
  testing::TemporaryFolder folder;
  Capture capture(folder / "problems.jsonl");
  const Problem a = parse_problem("dtype=bf16,head_dim=64,heads=4,seqlen=128"),
                b = parse_problem("dtype=fp16,head_dim=64,heads=4,seqlen=128");
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) capture.note(i % 2 ? a : b);
    });
  for (std::thread& thread : threads) thread.join();
  std::ifstream lines(folder / "problems.jsonl");
  std::vector<std::string> problems;
  for (std::string line; std::getline(lines, line);)
    problems.push_back(nlohmann::json::parse(line).at("problem"));
  EXPECT_THAT(problems, ::testing::UnorderedElementsAre(to_text(a), to_text(b)));
}

TEST(Capture, PlansAreCapturedAndRunsAreNot) {
  testing::TemporaryFolder folder;
  EngineOptions options;
  options.use_store = false;
  options.capture_file = folder / "problems.jsonl";
  Engine engine(std::make_shared<testing::FakeDevice>(), options);
  const Problem problem = parse_problem("dtype=bf16,head_dim=64,heads=4,seqlen=128");
  const auto plan = engine.plan(problem);
  std::filesystem::remove(folder / "problems.jsonl");
  engine.plan(problem);
  EXPECT_FALSE(std::filesystem::exists(folder / "problems.jsonl"));
}

TEST(Capture, AnUnwritableFileIsLoggedOnce) {
  std::vector<std::string> logged;
  const LogSink former =
      set_log_sink([&](LogLevel, std::string_view text) { logged.emplace_back(text); });
  Capture capture("/proc/nowhere/problems.jsonl");
  capture.note(parse_problem("dtype=bf16,head_dim=64,heads=4,seqlen=128"));
  capture.note(parse_problem("dtype=bf16,head_dim=64,heads=4,seqlen=256"));
  set_log_sink(former);
  EXPECT_THAT(logged,
              ::testing::ElementsAre(HasSubstr("/proc/nowhere/problems.jsonl cannot be written")));
}

}  // namespace
}  // namespace attune
