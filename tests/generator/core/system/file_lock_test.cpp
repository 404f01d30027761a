// SPDX-License-Identifier: Apache-2.0
// Waiting for a lock ends at its time limit or on request, and the message names the holder.
#include "generator/core/system/file_lock.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "generator/core/system/files.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace attune {
namespace {

class FileLockTest : public ::testing::Test {
 protected:
  // A directory can be locked like a file, by any user who can read it.
  FileDescriptor opened() const {
    return FileDescriptor(::open(temporary_.path().c_str(), O_RDONLY | O_CLOEXEC));
  }
  const testing::TemporaryFolder temporary_;
};

TEST_F(FileLockTest, OnlyOneDescriptorHoldsTheLock) {
  const FileDescriptor one = opened(), two = opened();
  const LockWait at_once{std::chrono::milliseconds(0)};
  EXPECT_EQ(lock_holder(one.get()), "another process") << "no process holds it";
  EXPECT_EQ(lock_file(one.get(), at_once), LockResult::kHeld);
  EXPECT_EQ(lock_file(two.get(), at_once), LockResult::kTimedOut);
  EXPECT_EQ(lock_file(-1, at_once), LockResult::kFailed);
}

TEST_F(FileLockTest, WaitsUntilItsTimeLimit) {
  const FileDescriptor one = opened(), two = opened();
  ASSERT_EQ(lock_file(one.get(), {}), LockResult::kHeld);
  std::string who;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(lock_file(two.get(), {std::chrono::milliseconds(250),
                                  {},
                                  [&](const std::string& holder) { who += holder; }}),
            LockResult::kTimedOut);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(250));
  EXPECT_THAT(who, ::testing::StartsWith("pid " + std::to_string(getpid()) + " (file_lock_test"));
  const struct passwd* user = getpwuid(getuid());
  const std::string name = user ? user->pw_name : std::to_string(getuid());
  EXPECT_THAT(who, ::testing::EndsWith(" of user " + name));
  int looks = 0;
  EXPECT_EQ(lock_file(two.get(), {std::chrono::hours(1), [&] { return ++looks == 3; }, {}}),
            LockResult::kStopped);
}

}  // namespace
}  // namespace attune
