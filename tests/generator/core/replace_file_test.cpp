// SPDX-License-Identifier: Apache-2.0
// Files are written whole, under names of their own, and never through a link.
#include "generator/core/replace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>

#include "generator/core/error.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

class ReplaceFileTest : public ::testing::Test {
 protected:
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ReplaceFileTest, TheNewTextStandsAndNothingElse) {
  const mode_t former = umask(022);
  replace_file(folder_ / "a", "one");
  replace_file(folder_ / "a", std::string("t\0o", 3));
  umask(former);
  EXPECT_EQ(read(folder_ / "a"), std::string("t\0o", 3));
  EXPECT_EQ(fs::status(folder_ / "a").permissions(), fs::perms(0644));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(ReplaceFileTest, LinksAreNotFollowed) {
  std::ofstream(folder_ / "victim") << "precious";
  fs::create_symlink("victim", folder_ / "a");
  fs::create_symlink("victim", folder_ / ("a." + std::to_string(getpid()) + "-0.part"));
  replace_file(folder_ / "a", "new");
  EXPECT_EQ(read(folder_ / "victim"), "precious");
  EXPECT_FALSE(fs::is_symlink(folder_ / "a"));
  EXPECT_EQ(read(folder_ / "a"), "new");
}

TEST_F(ReplaceFileTest, WhatCannotBeWrittenLeavesTheFormerText) {
  replace_file(folder_ / "a", "former");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit few{1000, unlimited.rlim_max};
  setrlimit(RLIMIT_FSIZE, &few);
  EXPECT_THROW(replace_file(folder_ / "a", std::string(5000, 'x')), Error);
  setrlimit(RLIMIT_FSIZE, &unlimited);
  EXPECT_EQ(read(folder_ / "a"), "former");
  EXPECT_EQ(entries(), 1U);
  EXPECT_THROW(replace_file(folder_ / "none" / "a", "x"), Error);
}

}  // namespace
}  // namespace attune
