// SPDX-License-Identifier: Apache-2.0
// Every system call that SQLite makes for us fails once, at its first, second, third ... use: what
// was committed stays, what was refused is an error, and the next opening finds a sound store.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

// Counts calls until one fails; 0: none fails. `failed` is true after the failure.
struct Fault {
  int countdown = 0;
  int error = EIO;
  bool failed = false;
  bool due() {
    if (countdown == 0 || --countdown > 0) return false;
    failed = true;
    errno = error;
    return true;
  }
};
Fault fault;

int faulty_open(const char* path, int flags, int mode) {
  return fault.due() ? -1 : ::open(path, flags, mode);
}
ssize_t faulty_pread(int fd, void* to, size_t size, off_t at) {
  return fault.due() ? -1 : ::pread(fd, to, size, at);
}
ssize_t faulty_pwrite(int fd, const void* from, size_t size, off_t at) {
  return fault.due() ? -1 : ::pwrite(fd, from, size, at);
}
// Half of the bytes arrive, then the disk is full: a torn page.
ssize_t torn_pwrite(int fd, const void* from, size_t size, off_t at) {
  if (!fault.due()) return ::pwrite(fd, from, size, at);
  fault.countdown = 1;  // the rest is refused as well
  return size > 1 ? ::pwrite(fd, from, size / 2, at) : -1;
}
int faulty_fstat(int fd, struct stat* status) { return fault.due() ? -1 : ::fstat(fd, status); }
int faulty_unlink(const char* path) { return fault.due() ? -1 : ::unlink(path); }
int faulty_fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return fault.due() ? -1 : ::fcntl(fd, command, argument);
}

struct SystemCall {
  const char* test_name;
  std::vector<const char*> names;  // as SQLite's VFS knows it, on this or that machine
  sqlite3_syscall_ptr replacement;
  int error;
};

template <class Function>
sqlite3_syscall_ptr pointer(Function* function) {
  return reinterpret_cast<sqlite3_syscall_ptr>(function);
}

class StoreFaultTest : public StoreTest, public testing::WithParamInterface<SystemCall> {
 protected:
  StoreFaultTest() : vfs_(sqlite3_vfs_find("unix")) {
    for (const char* name : GetParam().names)
      vfs_->xSetSystemCall(vfs_, name, GetParam().replacement);
    fault = {0, GetParam().error, false};
  }
  ~StoreFaultTest() override {
    for (const char* name : GetParam().names) vfs_->xSetSystemCall(vfs_, name, nullptr);
  }

  // Opens, writes and reads; returns the numbers of the trials whose put returned.
  std::vector<int64_t> work() {
    std::vector<int64_t> committed;
    const auto attempt = [](const auto& step) {
      try {
        step();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kStore) << error.what();
      }
    };
    attempt([&] {
      Store store = writer();
      for (const int64_t number : {1, 2, 3})
        attempt([&] {
          store.put_trial(sample_key(), sample_trial(number));
          committed.push_back(number);
        });
      attempt([&] { store.put_image(sample_image_key(), sample_image(std::string(30'000, 'k'))); });
      attempt([&] {
        EXPECT_EQ(
            store.image(sample_image_key()).value_or(sample_image(std::string(30'000, 'k'))).bytes,
            std::string(30'000, 'k'));
      });
    });
    attempt([&] { reader().trials(sample_key()); });
    return committed;
  }

  sqlite3_vfs* vfs_;
};

TEST_P(StoreFaultTest, EachUseFailsOnce) {
  int n = 0;
  do {
    SCOPED_TRACE(testing::Message() << GetParam().test_name << " fails at use " << ++n);
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove_all(entry.path());
    writer().put_trial(sample_key(), sample_trial(100));
    fault = {n, GetParam().error, false};
    const std::vector<int64_t> committed = work();
    fault.countdown = 0;

    Store store = writer();
    EXPECT_TRUE(store.verify().empty());
    std::vector<int64_t> stored;
    for (const TrialRecord& trial : store.trials(sample_key()))
      stored.push_back(trial.config.at("block_m"));
    EXPECT_THAT(stored, testing::IsSupersetOf(committed));
    EXPECT_THAT(stored, testing::Contains(100)) << "the trial stored before";
    store.put_trial(sample_key(), sample_trial(200));
    for (const auto& entry : fs::directory_iterator(folder_))
      EXPECT_EQ(entry.path().string().find(".corrupt-"), std::string::npos)
          << "a failing disk is not a damaged file";
    ASSERT_LT(n, 2000) << "the work must end";
  } while (fault.failed && !HasFailure());
  EXPECT_GT(n, 1) << "the call was never used: this test says nothing";
  std::cout << GetParam().test_name << ": " << n - 1 << " uses failed in turn\n";
}

INSTANTIATE_TEST_SUITE_P(
    SystemCalls, StoreFaultTest,
    testing::Values(SystemCall{"open", {"open"}, pointer(faulty_open), EACCES},
                    SystemCall{"pread", {"pread", "pread64"}, pointer(faulty_pread), EIO},
                    SystemCall{"pwrite", {"pwrite", "pwrite64"}, pointer(faulty_pwrite), EIO},
                    SystemCall{"torn_pwrite", {"pwrite", "pwrite64"}, pointer(torn_pwrite), ENOSPC},
                    SystemCall{"fstat", {"fstat"}, pointer(faulty_fstat), EIO},
                    SystemCall{"unlink", {"unlink"}, pointer(faulty_unlink), EACCES},
                    SystemCall{"fcntl", {"fcntl"}, pointer(faulty_fcntl), ENOLCK}),
    [](const auto& info) { return std::string(info.param.test_name); });

}  // namespace
}  // namespace attune
