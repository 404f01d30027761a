// SPDX-License-Identifier: Apache-2.0
// Reading the environment. tests/runtime/foreign_code_test.py checks that a setuid program reads
// nothing from it.
#include "generator/core/system/environment.hpp"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace attune {
namespace {

TEST(Environment, UnsetAndEmptyDiffer) {
  unsetenv("ATTUNE_TEST_VARIABLE");
  EXPECT_FALSE(environment_variable("ATTUNE_TEST_VARIABLE"));
  setenv("ATTUNE_TEST_VARIABLE", "", 1);
  EXPECT_EQ(environment_variable("ATTUNE_TEST_VARIABLE"), "");
  setenv("ATTUNE_TEST_VARIABLE", "a b", 1);
  EXPECT_EQ(environment_variable("ATTUNE_TEST_VARIABLE"), "a b");
  unsetenv("ATTUNE_TEST_VARIABLE");
}

TEST(Environment, AHomeThatIsNotAnAbsolutePathIsIgnored) {
  const std::string former = environment_variable("HOME").value_or("");
  setenv("HOME", "/some/where", 1);
  EXPECT_EQ(home_directory(), "/some/where");
  const struct passwd* user = getpwuid(geteuid());
  const auto known = user ? std::optional<std::string>(user->pw_dir) : std::nullopt;
  for (const char* home : {"", "relative", "./x"}) {
    setenv("HOME", home, 1);
    EXPECT_EQ(home_directory(), known) << home;
  }
  unsetenv("HOME");
  EXPECT_EQ(home_directory(), known);
  if (!former.empty()) setenv("HOME", former.c_str(), 1);
}

}  // namespace
}  // namespace attune
