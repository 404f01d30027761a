// SPDX-License-Identifier: Apache-2.0
// The lock of a device. One process holds it at a time, it is free when its holder is killed, and
// waiting processes learn who holds it. It works for other users too, and never writes through a
// file that somebody else left.
#include "tuner/measure/device_lock.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "generator/core/system/log.hpp"
#include "tests/runtime/temporary_folder.hpp"
#include "tests/support/wall_clock.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DeviceLockTest : public ::testing::Test {
 protected:
  DeviceLockTest() {
    ::chmod(folder_.c_str(), 01777);
    former_ = set_log_sink([this](LogLevel, std::string_view text) { logged_ += text; });
  }
  ~DeviceLockTest() override { set_log_sink(former_); }

  // Starts a process that holds the lock until it is killed.
  pid_t start_holder() const {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const DeviceLock lock("gpu 0000:3b:00.0", folder_, {});
      if (::write(ready[1], lock.held() ? "y" : "n", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char held = 'n';
    EXPECT_EQ(::read(ready[0], &held, 1), 1);
    EXPECT_EQ(held, 'y');
    ::close(ready[0]), ::close(ready[1]);
    return child;
  }
  static void kill_hard(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  fs::path file() const { return folder_ / "attune-gpu-0000-3b-00.0.lock"; }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::string logged_;
  std::atomic<bool> is_taken_{false};

 private:
  LogSink former_;
};

TEST_F(DeviceLockTest, OneHolderAtATimeAndFreeWhenItIsGone) {
  const DeviceLock::Waiting at_once{[] { return true; }, {}};
  {
    const DeviceLock first("cpu", folder_, {});
    EXPECT_TRUE(first.held());
    const DeviceLock second("cpu", folder_, at_once);
    EXPECT_FALSE(second.held());
    EXPECT_TRUE(second.stopped_waiting());
    EXPECT_TRUE(DeviceLock("gpu 0000:3b:00.0", folder_, at_once).held()) << "another device";
  }
  EXPECT_TRUE(DeviceLock("cpu", folder_, at_once).held());
  EXPECT_EQ(logged_, "");
}

TEST_F(DeviceLockTest, AKilledHolderIsNamedAndLetsGo) {
  const pid_t holder = start_holder();
  std::vector<std::string> notices;
  int looks = 0;
  const auto kill_at_the_fifth_look = [&] {
    if (++looks == 5) kill_hard(holder);
    return false;
  };
  const DeviceLock lock(
      "gpu 0000:3b:00.0", folder_,
      {kill_at_the_fifth_look, [&](const std::string& text) { notices.push_back(text); }});
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(looks, 5);
  ASSERT_EQ(notices.size(), 1U) << "once, however long it takes";
  EXPECT_THAT(notices[0], HasSubstr("waiting for pid " + std::to_string(holder)));
  EXPECT_THAT(notices[0], HasSubstr("device_lock_test"));
  EXPECT_THAT(notices[0], HasSubstr("gpu 0000:3b:00.0, for at most 600 s"));
  const struct passwd* user = ::getpwuid(::getuid());
  EXPECT_THAT(notices[0], HasSubstr(std::string(") of user ") + (user ? user->pw_name : "")));
}

// Anybody may hold the lock for ever. Then measuring goes on, with a warning that names the holder.
TEST_F(DeviceLockTest, WaitingHasABound) {
  const pid_t holder = start_holder();
  const auto began = std::chrono::steady_clock::now();
  int notices = 0;
  const DeviceLock lock(
      "gpu 0000:3b:00.0", folder_,
      {{}, [&](const std::string&) { ++notices; }, std::chrono::milliseconds(300)});
  EXPECT_FALSE(lock.held());
  EXPECT_FALSE(lock.stopped_waiting()) << "measuring goes on";
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(300));
  EXPECT_EQ(notices, 1);
  EXPECT_THAT(logged_, HasSubstr("AT502: "));
  EXPECT_THAT(logged_, HasSubstr("cannot be locked (pid " + std::to_string(holder)));
  EXPECT_THAT(logged_, HasSubstr("has held it for 0.3 s): another tune"));
  kill_hard(holder);
}

TEST_F(DeviceLockTest, WaitingEndsOnRequest) {
  const pid_t holder = start_holder();
  const auto began = std::chrono::steady_clock::now();
  const auto is_over = [&] {
    return std::chrono::steady_clock::now() - began > std::chrono::milliseconds(300);
  };
  const DeviceLock lock("gpu 0000:3b:00.0", folder_, {is_over, {}});
  EXPECT_TRUE(lock.stopped_waiting());
  ATTUNE_EXPECT_WITHIN(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  kill_hard(holder);
}

TEST_F(DeviceLockTest, OtherUsersMayLockTheFileAndNothingElse) {
  ::umask(077);
  EXPECT_TRUE(DeviceLock("gpu 0000:3b:00.0", folder_, {}).held());
  ::umask(022);
  struct stat status {};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0444U);
  EXPECT_EQ(status.st_size, 0);
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t holder = start_holder();
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    ::_exit(DeviceLock("gpu 0000:3b:00.0", folder_, {[] { return true; }, {}}).stopped_waiting()
                ? 0
                : 1);
  }
  int ended = 0;
  ::waitpid(other, &ended, 0);
  EXPECT_EQ(WEXITSTATUS(ended), 0) << "another user waits for us too";
  kill_hard(holder);
}

TEST_F(DeviceLockTest, OtherFilesGiveAWarningAndStayUnchanged) {
  const fs::path victim = folder_ / "victim";
  ASSERT_EQ(::symlink(victim.c_str(), file().c_str()), 0);
  EXPECT_FALSE(DeviceLock("gpu 0000:3b:00.0", folder_, {}).stopped_waiting());
  EXPECT_FALSE(fs::exists(victim)) << "no link is followed";
  EXPECT_THAT(logged_, HasSubstr("cannot be locked"));
  logged_.clear();
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0644), 0);
  EXPECT_FALSE(DeviceLock("gpu 0000:3b:00.0", folder_, {}).held()) << "and a FIFO does not hang";
  EXPECT_THAT(logged_, HasSubstr("cannot be locked"));
  logged_.clear();
  EXPECT_FALSE(DeviceLock("cpu", folder_ / "not there", {}).held());
  EXPECT_THAT(logged_, HasSubstr("cannot be locked"));
}

TEST_F(DeviceLockTest, AFileThatWasDeletedMeanwhileDoesNotCount) {
  const pid_t holder = start_holder();
  std::thread deleter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    fs::remove(file());
    const DeviceLock newer("gpu 0000:3b:00.0", folder_, {});  // locks the file that is there now
    kill_hard(holder);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_TRUE(newer.held());
    EXPECT_FALSE(is_taken_) << "two held the device at a time";
  });
  const DeviceLock lock("gpu 0000:3b:00.0", folder_, {});
  is_taken_ = true;
  EXPECT_TRUE(lock.held());
  deleter.join();
}

}  // namespace
}  // namespace attune
