// SPDX-License-Identifier: Apache-2.0
// Waits for a flock, and names its holder; see file_lock.hpp.
#include "generator/core/system/file_lock.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <vector>

namespace attune {
namespace {

constexpr std::chrono::milliseconds kPoll{100};
constexpr size_t kShownCommand = 60;  // characters

// Returns the id of the process that holds the lock, from /proc/locks, or 0 if the lock is not
// listed. A line is "1: FLOCK  ADVISORY  WRITE 1234 00:2d:5678 0 EOF".
int process_of(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return 0;
  const std::string inode = fmt::format(":{}", status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, place;
    int pid = 0;
    if (words >> number >> kind >> advisory >> mode >> pid >> place && kind == "FLOCK" &&
        place.ends_with(inode))
      return pid;
  }
  return 0;
}

// Returns " (attune tune --problem ...)", with '?' for characters that are not printable.
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
  return text.empty() ? text : " (" + text + ")";
}

// Returns " of user joe", or the number of a user without a name.
std::string user_of(int pid) {
  struct stat status {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0) return "";
  std::vector<char> text(16384);
  struct passwd entry {};
  struct passwd* user = nullptr;
  const bool known =
      ::getpwuid_r(status.st_uid, &entry, text.data(), text.size(), &user) == 0 && user != nullptr;
  return known ? fmt::format(" of user {}", user->pw_name)
               : fmt::format(" of user {}", status.st_uid);
}

}  // namespace

std::string lock_holder(int file) {
  const int pid = process_of(file);
  return pid <= 0 ? "another process"
                  : fmt::format("pid {}{}{}", pid, command_of(pid), user_of(pid));
}

LockResult lock_file(int file, const LockWait& wait) {
  const auto until = std::chrono::steady_clock::now() + wait.most;
  bool said = false;
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return LockResult::kFailed;
    if (wait.stop && wait.stop()) return LockResult::kStopped;
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return LockResult::kTimedOut;
    if (!said && wait.notice) wait.notice(lock_holder(file));
    said = true;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kPoll, left));
  }
  return LockResult::kHeld;
}

}  // namespace attune
