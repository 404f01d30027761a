// SPDX-License-Identifier: Apache-2.0
// Tests which file a store's path leads to while another user tries to redirect it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/store_stack.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uid_t kNobody = 65534;
constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE, which older headers lack

class StorePathTest : public StoreTest {
 protected:
  StorePathTest() { alarm(120); }  // nothing here may hang
  ~StorePathTest() override { alarm(0); }
};

// Starts a process that swaps two names for ever, as another user.
pid_t start_swapping(const fs::path& a, const fs::path& b) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (setuid(kNobody) != 0) _exit(1);
  for (;;) syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kExchange);
}

TEST_F(StorePathTest, ASwappedFolderIsNeverOpened) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: being attacked by another user needs root";
  // Like /tmp/.cache/attune, if an attacker was there first.
  const fs::path above = folder_ / "tmp" / ".cache", ours = above / "attune", evil = above / "evil";
  fs::create_directories(ours);
  fs::create_directories(evil);
  chmod(folder_.c_str(), 0755);
  chmod((folder_ / "tmp").c_str(), 01777);
  chmod(ours.c_str(), 0700);
  Store::open(file(), StoreMode::kReadWrite).put_trial(sample_key(), sample_trial(16));
  fs::copy_file(file(), evil / "store.db");
  Store::open(file("own.db"), StoreMode::kReadWrite);
  fs::copy_file(file("own.db"), ours / "store.db");
  for (const fs::path& theirs : {above, evil, evil / "store.db"})
    ASSERT_EQ(chown(theirs.c_str(), kNobody, kNobody), 0);

  const pid_t attacker = start_swapping(ours, evil);
  int foreign = 0;
  for (int i = 0; i < 5000; ++i) {
    try {
      foreign += Store::open(ours / "store.db", StoreMode::kReadOnly).stats().trials != 0;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kStore);
    }
  }
  kill(attacker, SIGKILL);
  waitpid(attacker, nullptr, 0);
  EXPECT_EQ(foreign, 0);
}

TEST_F(StorePathTest, AFolderAboveThatOthersCanWriteIsRefused) {
  const fs::path above = folder_ / "above", store = above / "attune" / "store.db";
  Store::open(store, StoreMode::kReadWrite);
  chmod(above.c_str(), 0777);
  for (const StoreMode mode : {StoreMode::kReadOnly, StoreMode::kReadWrite})
    EXPECT_THAT(error_of(ErrorCode::kStore, [&] { Store::open(store, mode); }),
                HasSubstr("directory " + above.string() + " has mode 0777"));
}

TEST_F(StorePathTest, FifosAndDirectoriesAreRefusedWithoutHanging) {
  ASSERT_EQ(mkfifo(file("fifo").c_str(), 0600), 0);
  fs::create_directory(file("directory"));
  fs::create_symlink("/dev/zero", file("zero"));
  const std::pair<std::string, std::string> cases[] = {
      {"fifo", "is a FIFO, not a regular file"},
      {"directory", "is a directory, not a regular file"},
      {"zero", "is a device, not a regular file"},
      {"fifo/store.db", "is not a directory"}};
  for (const auto& [name, reason] : cases)
    for (const StoreMode mode : {StoreMode::kReadOnly, StoreMode::kReadWrite})
      EXPECT_THAT(error_of(ErrorCode::kStore, [&] { Store::open(file(name), mode); }),
                  HasSubstr(reason));
  EXPECT_FALSE(StoreStack({file("fifo")}).image(sample_image_key()).has_value());
}

TEST_F(StorePathTest, SqlitesNamesForNoFileAreRefused) {
  const fs::path former = fs::current_path();
  fs::current_path(folder_);
  for (const char* name : {":memory:", ""})
    EXPECT_THAT(error_of(ErrorCode::kStore, [&] { Store::open(name, StoreMode::kReadWrite); }),
                HasSubstr("must be the name of a file"));
  fs::current_path(former);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(StorePathTest, AJournalOfOthersIsNotPlayedBack) {
  writer().put_trial(sample_key(), sample_trial());
  write_bytes(file("store.db-journal"), "");
  EXPECT_EQ(reader().stats().trials, 1);
  chmod(file("store.db-journal").c_str(), 0666);
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { reader(); }), HasSubstr("store.db-journal"));
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { writer(); }), HasSubstr("store.db-journal"));
}

TEST_F(StorePathTest, ALinkToAStoreServes) {
  Store::open(file("elsewhere/real.db"), StoreMode::kReadWrite)
      .put_trial(sample_key(), sample_trial());
  fs::create_symlink("elsewhere/real.db", file());
  EXPECT_EQ(reader().stats().trials, 1);
  writer().put_trial(sample_key(), sample_trial(16));
  EXPECT_EQ(Store::open(file("elsewhere/real.db"), StoreMode::kReadOnly).stats().trials, 2);
}

}  // namespace
}  // namespace attune
