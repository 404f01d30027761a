// SPDX-License-Identifier: Apache-2.0
// Locks a device, and names the holder of a lock; see device_lock.hpp.
#include "tuner/measure/device_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "generator/core/system/environment.hpp"
#include "generator/core/system/file_lock.hpp"
#include "generator/core/system/files.hpp"
#include "generator/core/system/log.hpp"

namespace attune {
namespace {

std::filesystem::path file_of(const std::string& hardware, const std::filesystem::path& folder) {
  std::string name = "attune-" + hardware + ".lock";
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  return folder / name;
}

// Returns the open lock file. If it cannot be opened, returns an empty descriptor and sets `why` to
// the reason. Another user's file is opened for reading, which is enough for a lock.
FileDescriptor open_lock(const std::filesystem::path& path, std::string* why) {
  FileDescriptor file = open_regular(path, O_RDONLY | O_NOFOLLOW, why);
  if (file || ::access(path.c_str(), F_OK) == 0 || errno != ENOENT) return file;
  file = open_regular(path, O_RDONLY | O_NOFOLLOW | O_CREAT | O_EXCL, why, 0444);
  if (file) {
    ::fchmod(file.get(), 0444);  // regardless of the umask: others lock it as well
    return file;
  }
  return open_regular(path, O_RDONLY | O_NOFOLLOW, why);  // another process may have been faster
}

bool is_still(int fd, const std::filesystem::path& path) {
  struct stat mine {
  }, there{};
  return ::fstat(fd, &mine) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

constexpr std::chrono::milliseconds kNone{0};
double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }

void log_unlocked(const std::filesystem::path& path, const std::string& why) {
  log(LogCode::kTuneNotLocked,
      fmt::format("{} cannot be locked ({}): another tune on this device would disturb this one",
                  path.string(), why));
}

}  // namespace

std::filesystem::path lock_folder() {
  const std::string folder = environment_variable("ATTUNE_LOCKS").value_or("");
  return folder.empty() ? "/tmp" : folder;
}

DeviceLock::DeviceLock(const std::string& hardware, const std::filesystem::path& folder,
                       const Waiting& waiting) {
  const std::filesystem::path path = file_of(hardware, folder);
  const auto until = std::chrono::steady_clock::now() + waiting.most;
  LockWait wait{waiting.most, waiting.stop, {}};
  if (waiting.notice)
    wait.notice = [&](const std::string& who) {
      waiting.notice(fmt::format("waiting for {}, which measures on {}, for at most {} s", who,
                                 hardware, seconds(waiting.most)));
      wait.notice = nullptr;  // only once, even if the file is replaced
    };
  for (;;) {
    std::string why;
    FileDescriptor file = open_lock(path, &why);
    const LockResult result = file ? lock_file(file.get(), wait) : LockResult::kFailed;
    if (result == LockResult::kHeld && !is_still(file.get(), path)) {
      // the file was deleted meanwhile, and a new one counts
      wait.most = std::max(kNone, std::chrono::duration_cast<std::chrono::milliseconds>(
                                      until - std::chrono::steady_clock::now()));
      continue;
    }
    if (result == LockResult::kFailed && file) why = std::strerror(errno);
    if (result == LockResult::kTimedOut)
      why = fmt::format("{} has held it for {} s", lock_holder(file.get()), seconds(waiting.most));
    if (result == LockResult::kHeld) file_ = std::move(file);
    stopped_waiting_ = result == LockResult::kStopped;
    if (!why.empty()) log_unlocked(path, why);
    return;
  }
}

}  // namespace attune
