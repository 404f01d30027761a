// SPDX-License-Identifier: Apache-2.0
// Files are replaced atomically, under a temporary name, and never through a link. Other kinds of
// files are not replaced.
#include "generator/core/system/files.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "generator/core/system/error.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace {
int failing_fsync = 0;  // the reason; 0: none
}

// Replaces the C library's fsync, to inject failures.
extern "C" int fsync(int file) {
  if (failing_fsync == 0) return static_cast<int>(syscall(SYS_fsync, file));
  errno = failing_fsync;
  return -1;
}

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

TEST_F(ReplaceFileTest, TheNewTextReplacesTheFileAndNothingElseIsLeft) {
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

TEST_F(ReplaceFileTest, AFailedWriteKeepsTheOldText) {
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

TEST_F(ReplaceFileTest, AFailedFsyncKeepsTheOldText) {
  replace_file(folder_ / "a", "former");
  failing_fsync = EIO;
  EXPECT_THROW(replace_file(folder_ / "a", "new"), Error);
  failing_fsync = 0;
  EXPECT_EQ(read(folder_ / "a"), "former");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(ReplaceFileTest, APipeGetsTheBytesAndIsNotReplaced) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", folder_ / "link");
  const int end = open((folder_ / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  for (const char* name : {"pipe", "link"}) {
    replace_file(folder_ / name, "bytes");
    char got[8] = {};
    EXPECT_EQ(::read(end, got, sizeof got), 5) << name;
    EXPECT_STREQ(got, "bytes");
    EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
  }
  close(end);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(entries(), 2U);
}

TEST_F(ReplaceFileTest, ADeviceIsNotReplaced) {
  fs::create_symlink("/dev/null", folder_ / "link");
  replace_file(folder_ / "link", "bytes");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  fs::create_symlink("/dev/full", folder_ / "full");
  EXPECT_THROW(replace_file(folder_ / "full", "bytes"), Error);
  EXPECT_TRUE(fs::is_symlink(folder_ / "full"));
}

TEST_F(ReplaceFileTest, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: giving a file to another user needs root";
  const auto refusal = [&](const char* name) -> std::string {
    alarm(60);
    try {
      replace_file(folder_ / name, "bytes");
    } catch (const Error& error) {
      alarm(0);
      return error.what();
    }
    return "written";
  };
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", folder_ / "theirs");
  fs::create_symlink("theirs", folder_ / "mine");
  ASSERT_EQ(chown((folder_ / "fifo").c_str(), 65534, 0), 0);
  ASSERT_EQ(lchown((folder_ / "theirs").c_str(), 65534, 0), 0);
  EXPECT_THAT(refusal("fifo"), ::testing::HasSubstr("is a FIFO of user 65534"));
  for (const char* name : {"theirs", "mine"})
    EXPECT_THAT(refusal(name), ::testing::HasSubstr("theirs is a link of user 65534")) << name;
  EXPECT_TRUE(fs::is_symlink(folder_ / "theirs"));
}

TEST_F(ReplaceFileTest, ABlockDeviceIsRefused) {
  const dev_t none = makedev(240, 0);  // a number for experiments, without a driver
  if (mknod((folder_ / "block").c_str(), S_IFBLK | 0600, none) != 0)
    GTEST_SKIP() << "SKIPPED: a block device cannot be made here: " << std::strerror(errno);
  fs::create_symlink("block", folder_ / "link");
  for (const char* name : {"block", "link"}) try {
      replace_file(folder_ / name, "bytes");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("it is a block device; must be a file, a "
                                                     "pipe or a character device"));
    }
}

TEST_F(ReplaceFileTest, ASystemLinkToAnOpenFileIsNotReplaced) {
  std::ofstream open_file(folder_ / "open");
  fs::create_symlink("/proc/self/fd/0", folder_ / "stdin");
  const int file = open((folder_ / "open").c_str(), O_RDONLY);
  const int former = dup(STDIN_FILENO);
  dup2(file, STDIN_FILENO);
  EXPECT_THROW(replace_file(folder_ / "stdin", "bytes"), Error);
  dup2(former, STDIN_FILENO);
  EXPECT_TRUE(fs::is_symlink(folder_ / "stdin"));
  close(file);
  close(former);
}

}  // namespace
}  // namespace attune
