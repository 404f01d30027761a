// SPDX-License-Identifier: Apache-2.0
// Stores that others may have written, places that cannot be written, full disks, and fork. Root
// ignores file modes, so tests for an ordinary user run in a child without root rights. Tests that
// need a mount skip aloud without it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "cache/sqlite.hpp"
#include "cache/store_stack.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class StorePermissionTest : public StoreTest {
 protected:
  static unsigned mode_of(const fs::path& path) {
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 07777U;
  }
};

// Returns the answer of `work` in a child process; "" if it could not run. An attune::Error becomes
// its message.
std::string in_child(const std::function<std::string()>& work, uid_t user = 0) {
  int ends[2];
  if (pipe(ends) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    std::string answer;
    try {
      answer = user != 0 && setuid(user) != 0 ? "setuid failed" : work();
    } catch (const Error& error) {
      answer = std::string(error_code_name(error.code())) + ": " + error.what();
    }
    const ssize_t written = write(ends[1], answer.data(), answer.size());
    _exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return answer;
}

TEST_F(StorePermissionTest, NewFilesAreForTheirUserOnly) {
  const mode_t former = umask(0);
  const fs::path path = folder_ / "a" / "b" / "store.db";
  Store store = Store::open(path, StoreMode::kReadWrite);
  umask(former);
  store.put_trial(sample_key(), sample_trial());
  EXPECT_EQ(mode_of(path), 0600U);
  EXPECT_EQ(mode_of(folder_ / "a"), 0700U);
  EXPECT_EQ(mode_of(folder_ / "a" / "b"), 0700U);
}

TEST_F(StorePermissionTest, StoreWritableByOthersIsRefused) {
  writer();
  // A user's private group counts as the user. Root has no private group.
  const unsigned group = geteuid() == 0 ? 0020U : 0U;
  for (const unsigned mode : {0600U | group | (group ? 0U : 2U), 0602U, 0666U}) {
    chmod(file().c_str(), mode);
    EXPECT_THAT(error_of(ErrorCode::kStore, [&] { reader(); }), HasSubstr("others can write it"));
    EXPECT_THAT(error_of(ErrorCode::kStore, [&] { writer(); }), HasSubstr("chmod go-w"));
  }
  chmod(file().c_str(), 0644);
  EXPECT_EQ(reader().stats().trials, 0) << "readable by others is fine";
  for (const unsigned mode : {0700U | group | (group ? 0U : 7U), 0707U, 01777U}) {
    chmod(folder_.c_str(), mode);
    EXPECT_THAT(error_of(ErrorCode::kStore, [&] { reader(); }), HasSubstr("its directory"));
    EXPECT_THAT(error_of(ErrorCode::kStore, [&] { writer(); }), HasSubstr("its directory"));
    EXPECT_FALSE(StoreStack({file()}).image(sample_image_key()).has_value());
  }
  chmod(folder_.c_str(), 0755);
  EXPECT_EQ(reader().stats().trials, 0);
}

TEST_F(StorePermissionTest, StoreOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: giving a file to another user needs root";
  writer();
  ASSERT_EQ(chown(file().c_str(), kNobody, kNobody), 0);
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { reader(); }), HasSubstr("belongs to user 65534"));
  ASSERT_EQ(chown(file().c_str(), 0, 0), 0);
  ASSERT_EQ(chown(folder_.c_str(), kNobody, kNobody), 0);
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { reader(); }), HasSubstr("belongs to user 65534"));
}

TEST_F(StorePermissionTest, OrdinaryUserReadsRootsStoreAndCannotWriteIt) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: becoming another user needs root";
  writer().put_trial(sample_key(), sample_trial());
  chmod(folder_.c_str(), 0755);
  chmod(file().c_str(), 0644);
  const auto work = [&](StoreMode mode) {
    return in_child(
        [&, mode] { return std::to_string(Store::open(file(), mode).trials(sample_key()).size()); },
        kNobody);
  };
  EXPECT_EQ(work(StoreMode::kReadOnly), "1");
  EXPECT_THAT(work(StoreMode::kReadWrite), HasSubstr("cannot be written: Permission denied"));
}

TEST_F(StorePermissionTest, UnwritableDirectory) {
  const fs::path closed = folder_ / "closed";
  fs::create_directory(closed);
  const auto open = [&] {
    return Store::open(closed / "sub" / "store.db", StoreMode::kReadWrite).path().string();
  };
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder_.c_str(), kNobody, kNobody), 0);
    ASSERT_EQ(chown(closed.c_str(), kNobody, kNobody), 0);
  }
  chmod(closed.c_str(), 0500);
  EXPECT_THAT(in_child(open, geteuid() == 0 ? kNobody : 0),
              HasSubstr("cannot be made: Permission denied"));
  chmod(closed.c_str(), 0700);
}

TEST_F(StorePermissionTest, ReadOnlyMountIsReadAndNotWritten) {
  writer().put_trial(sample_key(), sample_trial());
  if (mount(folder_.c_str(), folder_.c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "SKIPPED: a read-only mount cannot be made here: " << std::strerror(errno);
  const int sealed =
      mount(nullptr, folder_.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr);
  if (sealed == 0) {
    EXPECT_EQ(reader().trials(sample_key()).size(), 1U);
    EXPECT_THAT(error_of(ErrorCode::kStore, [&] { writer(); }), HasSubstr("Read-only file system"));
  }
  umount(folder_.c_str());
  if (sealed != 0)
    GTEST_SKIP() << "SKIPPED: the mount cannot be made read-only: " << std::strerror(errno);
}

TEST_F(StorePermissionTest, FullDiskLosesNothingAndGoesOn) {
  if (mount("attune", folder_.c_str(), "tmpfs", 0, "size=512k,mode=0700") != 0)
    GTEST_SKIP() << "SKIPPED: a small tmpfs cannot be mounted here: " << std::strerror(errno);
  {
    Store store = writer();
    int64_t stored = 0;
    std::string message;
    while (message.empty() && stored < 1000) {
      try {
        store.put_image(sample_image_key(stored), sample_image(std::string(20'000, 'x')));
        ++stored;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kStore);
        message = error.what();
      }
    }
    EXPECT_THAT(message, HasSubstr("full"));
    EXPECT_GT(stored, 2);
    EXPECT_EQ(store.stats().images, stored)
        << "what was committed is there, what was refused is not";
    EXPECT_TRUE(store.verify().empty());
    EXPECT_TRUE(store.image(sample_image_key(0)).has_value());
    mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT, "size=4m");
    store.put_image(sample_image_key(5000), sample_image());
    EXPECT_EQ(reader().stats().images, stored + 1);
  }
  EXPECT_EQ(umount(folder_.c_str()), 0);
}

TEST_F(StorePermissionTest, FullDiskAtTheFirstWrite) {
  if (mount("attune", folder_.c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0)
    GTEST_SKIP() << "SKIPPED: a small tmpfs cannot be mounted here: " << std::strerror(errno);
  std::ofstream(folder_ / "filler") << std::string(64 << 10, 'x') << std::flush;
  error_of(ErrorCode::kStore, [&] { writer(); });
  fs::remove(folder_ / "filler");
  mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT, "size=4m");
  writer().put_trial(sample_key(), sample_trial());
  EXPECT_EQ(reader().stats().trials, 1) << "what the failed attempt left did not matter";
  EXPECT_EQ(umount(folder_.c_str()), 0);
}

TEST_F(StorePermissionTest, ChildDoesNotRollBackItsParent) {
  writer();
  auto database = std::make_optional(Database::open(file(), Database::Mode::kReadWrite));
  database->execute("BEGIN IMMEDIATE");
  database->execute("INSERT INTO problem (digest, text) VALUES ('d', 't')");
  EXPECT_THAT(in_child([&] {
                database->execute("COMMIT");
                return std::string("committed");
              }),
              HasSubstr("opened before fork"));
  EXPECT_EQ(in_child([&] {
              database.reset();
              return std::string("closed");
            }),
            "closed");
  database->execute("COMMIT");
  EXPECT_EQ(
      Database::open(file(), Database::Mode::kReadOnly).integer("SELECT count(*) FROM problem"), 1);
}

// The mutex of a Store is held by another thread at the moment of the fork: the child must not wait
// for it.
TEST_F(StorePermissionTest, ChildOfABusyParentGetsItsErrorAtOnce) {
  Store store = writer();
  Database holder = Database::open(file(), Database::Mode::kReadWrite);
  holder.execute("BEGIN IMMEDIATE");
  std::thread busy([&] { store.put_trial(sample_key(), sample_trial()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_THAT(in_child([&] {
                alarm(5);
                return std::to_string(store.stats().trials);
              }),
              HasSubstr("opened before fork"));
  holder.execute("ROLLBACK");
  busy.join();
  EXPECT_EQ(store.stats().trials, 1);
}

TEST_F(StorePermissionTest, ConnectionIsNotUsedAcrossFork) {
  Store store = writer();
  store.put_trial(sample_key(), sample_trial());
  EXPECT_THAT(in_child([&] { return std::to_string(store.trials(sample_key()).size()); }),
              HasSubstr("opened before fork"));
  EXPECT_THAT(in_child([&] {
                store.put_trial(sample_key(), sample_trial(64));
                return std::string("put");
              }),
              HasSubstr("opened before fork"));
  EXPECT_EQ(in_child([&] {
              { const Store moved = std::move(store); }
              return std::string("closed");
            }),
            "closed");
  EXPECT_EQ(in_child([&] { return std::to_string(reader().trials(sample_key()).size()); }), "1");
  store.put_trial(sample_key(), sample_trial(64));
  EXPECT_EQ(store.trials(sample_key()).size(), 2U);
}

}  // namespace
}  // namespace attune
