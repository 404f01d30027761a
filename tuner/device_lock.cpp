// SPDX-License-Identifier: Apache-2.0
// Taking the lock of a device, and naming who has it; see device_lock.hpp.
#include "tuner/device_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "generator/core/environment.hpp"
#include "generator/core/log.hpp"

namespace attune {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(100);
constexpr size_t kShownCommand = 60;  // characters

std::filesystem::path file_of(const std::string& hardware, const std::filesystem::path& folder) {
  std::string name = "attune-" + hardware + ".lock";
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  return folder / name;
}

// An open lock file, or -1 with errno. Another user's file is opened for reading, which a lock
// needs.
int open_file(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  for (int attempt = 0; attempt < 3; ++attempt) {
    int fd = ::open(path.c_str(), kFlags);
    if (fd < 0 && errno == ENOENT) {
      fd = ::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0444);
      if (fd >= 0) ::fchmod(fd, 0444);          // whatever the umask is: others lock it as well
      if (fd < 0 && errno == EEXIST) continue;  // another process was faster
    }
    if (fd < 0) return -1;
    struct stat status {};
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
    ::close(fd);
    errno = EEXIST;
    return -1;
  }
  return -1;
}

bool is_still(int fd, const std::filesystem::path& path) {
  struct stat mine {
  }, there{};
  return ::fstat(fd, &mine) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

// The process that holds the lock, from the kernel's list; 0 when it does not say (another
// container's process, say). A line: "1: FLOCK  ADVISORY  WRITE 1234 00:2d:5678 0 EOF".
int holder_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return 0;
  const std::string inode = fmt::format(":{}", status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, file;
    int pid = 0;
    if (words >> number >> kind >> advisory >> mode >> pid >> file && kind == "FLOCK" &&
        file.ends_with(inode))
      return pid;
  }
  return 0;
}

// "attune tune --problem ...", with nothing in it that a terminal would act on.
std::string command_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\0') text.pop_back();
  const size_t slash = text.substr(0, text.find('\0')).rfind('/');
  if (slash != std::string::npos) text.erase(0, slash + 1);
  for (char& c : text) {
    if (c == '\0') c = ' ';
    if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
  }
  if (text.size() > kShownCommand) text = text.substr(0, kShownCommand) + " ...";
  return text;
}

std::string waiting_for(int fd, const std::string& hardware) {
  const int pid = holder_of(fd);
  if (pid <= 0) return fmt::format("waiting for another process that measures on {}", hardware);
  const std::string command = command_of(pid);
  return fmt::format("waiting for pid {}{} that measures on {}", pid,
                     command.empty() ? "" : " (" + command + ")", hardware);
}

void log_unlockable(const std::filesystem::path& path, int error) {
  log(LogCode::kTuneNotLocked,
      fmt::format("{} cannot be locked ({}): another tune on this device would disturb this one",
                  path.string(), std::strerror(error)));
}

}  // namespace

void DeviceLock::FdTraits::close(Handle fd) noexcept { ::close(fd); }

std::filesystem::path lock_folder() {
  const std::string folder = environment_variable("ATTUNE_LOCKS").value_or("");
  return folder.empty() ? "/tmp" : folder;
}

DeviceLock::DeviceLock(const std::string& hardware, const std::filesystem::path& folder,
                       const Waiting& waiting) {
  const std::filesystem::path path = file_of(hardware, folder);
  bool said = false;
  for (;;) {
    UniqueHandle<FdTraits> file(open_file(path));
    if (!file) {
      log_unlockable(path, errno);
      return;
    }
    while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) {
        log_unlockable(path, errno);
        return;
      }
      if (waiting.stop && waiting.stop()) {
        stopped_waiting_ = true;
        return;
      }
      if (!said && waiting.notice) waiting.notice(waiting_for(file.get(), hardware));
      said = true;
      std::this_thread::sleep_for(kPoll);
    }
    if (is_still(file.get(), path)) {  // else it was deleted meanwhile, and another one counts
      file_ = std::move(file);
      return;
    }
  }
}

}  // namespace attune
