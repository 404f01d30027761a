// SPDX-License-Identifier: Apache-2.0
// Walks a path from "/" on, entry by entry: what stands above an entry has been checked before it
// is looked at.
#include "generator/core/private_path.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace attune {
namespace {

namespace fs = std::filesystem;
using Status = struct stat;

constexpr int kMostLinks = 40;  // as Linux

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// The group that many systems give each user for himself: named as the user, with nobody else in
// it.
bool is_own_group(gid_t gid) {
  if (gid == 0) return false;
  std::vector<char> user_text(4096), group_text(16384);
  struct passwd user_entry {};
  struct passwd* user = nullptr;
  struct group group_entry {};
  struct group* group = nullptr;
  if (::getpwuid_r(::geteuid(), &user_entry, user_text.data(), user_text.size(), &user) != 0 ||
      !user || ::getgrgid_r(gid, &group_entry, group_text.data(), group_text.size(), &group) != 0 ||
      !group)
    return false;
  if (user->pw_gid != gid || std::strcmp(user->pw_name, group->gr_name) != 0) return false;
  for (char** member = group->gr_mem; *member; ++member)
    if (std::strcmp(*member, user->pw_name) != 0) return false;
  return true;
}

bool others_can_write(const Status& status) {
  return (status.st_mode & S_IWOTH) != 0 ||
         ((status.st_mode & S_IWGRP) != 0 && !is_own_group(status.st_gid));
}

class Walk {
 public:
  Walk(const fs::path& path, const Guarded& what, bool make)
      : path_(path), what_(what), make_(make) {}

  // The file's path without links; nothing may stand there.
  fs::path to_file() {
    std::error_code failed;
    const fs::path whole = fs::absolute(path_, failed);
    if (failed) fail(fmt::format("the current directory is not known: {}", failed.message()));
    left_.assign(whole.begin(), whole.end());
    real_ = "/";
    root_owner_ = status_of(real_).st_uid;
    fs::path file;
    while (!left_.empty() && file.empty()) file = step();
    if (file.empty())
      file = real_;  // a directory; whoever wants a file refuses it
    else
      require_private("directory", real_, status_of(real_));
    return file;
  }

  void require_regular(const fs::path& file, bool may_be_missing) {
    Status status{};
    if (::lstat(file.c_str(), &status) != 0) {
      if (may_be_missing && errno == ENOENT) return;
      fail_on(file);
    }
    if (!S_ISREG(status.st_mode))
      fail(fmt::format("{} is {}, not a regular file", file.string(), kind_of(status.st_mode)));
    require_private("file", file, status);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(what_.code, fmt::format("{} {}: {}", what_.noun, path_.string(), reason));
  }
  [[noreturn]] void fail_on(const fs::path& entry) const {
    fail(fmt::format("{}: {}", entry.string(), std::strerror(errno)));
  }

  Status status_of(const fs::path& entry) const {
    Status status{};
    if (::lstat(entry.c_str(), &status) != 0) fail_on(entry);
    return status;
  }

  // Takes the next part of the path. Answers the file when it was that, else nothing.
  fs::path step() {
    const fs::path part = left_.front();
    left_.pop_front();
    if (part == "/") real_ = part;
    if (part.empty() || part == "." || part == "/") return {};
    if (part == "..") {
      real_ = real_.parent_path();
      return {};
    }
    const fs::path entry = real_ / part;
    Status status{};
    if (::lstat(entry.c_str(), &status) != 0) {
      if (errno != ENOENT) fail_on(entry);
      if (left_.empty()) return entry;
      if (!make_) fail_on(entry);
      if (::mkdir(entry.c_str(), what_.directory_mode) != 0 && errno != EEXIST)
        fail(fmt::format("directory {} cannot be made: {}", entry.string(), std::strerror(errno)));
      status = status_of(entry);
    }
    if (S_ISLNK(status.st_mode)) {
      require_owner("link", entry, status);
      follow(entry);
    } else if (S_ISDIR(status.st_mode)) {
      if ((status.st_mode & S_ISVTX) != 0)
        require_owner("directory", entry, status);
      else
        require_private("directory", entry, status);
      real_ = entry;
    } else if (left_.empty()) {
      return entry;
    } else {
      fail(fmt::format("{} is not a directory", entry.string()));
    }
    return {};
  }

  void follow(const fs::path& link) {
    if (++links_ > kMostLinks) fail(fmt::format("{}: {}", link.string(), std::strerror(ELOOP)));
    std::error_code failed;
    const fs::path target = fs::read_symlink(link, failed);
    if (failed) fail(fmt::format("{}: {}", link.string(), failed.message()));
    left_.insert(left_.begin(), target.begin(), target.end());
  }

  // Whoever owns "/" can change everything anyway. In a user namespace without root that is the uid
  // that stands for the users it does not know.
  void require_owner(const char* noun, const fs::path& entry, const Status& status) const {
    if (status.st_uid == ::geteuid() || status.st_uid == 0 || status.st_uid == root_owner_) return;
    fail(
        fmt::format("its {} {} belongs to user {}, neither to you nor to root; stored kernels are "
                    "code, so it is not used",
                    noun, entry.string(), status.st_uid));
  }

  void require_private(const char* noun, const fs::path& entry, const Status& status) const {
    require_owner(noun, entry, status);
    if (!others_can_write(status)) return;
    // A directory of root may be one of the system's, which has its mode for a reason.
    const bool ours = status.st_uid == ::geteuid() &&
                      (S_ISREG(status.st_mode) || ::geteuid() != 0) &&
                      (status.st_mode & S_ISVTX) == 0;
    fail(
        fmt::format("its {} {} has mode {:04o}, so others can write it; stored kernels are code, "
                    "so it is not used ({})",
                    noun, entry.string(), status.st_mode & 07777U,
                    ours ? fmt::format("chmod go-w {}", entry.string())
                         : std::string("use a folder of your own: mkdir -m 700 FOLDER")));
  }

  const fs::path& path_;
  const Guarded& what_;
  const bool make_;
  std::deque<fs::path> left_;  // parts that were not taken yet
  fs::path real_;              // the directory they start from
  uid_t root_owner_ = 0;
  int links_ = 0;
};

}  // namespace

fs::path private_file(const fs::path& path, const Guarded& what) {
  Walk walk(path, what, false);
  const fs::path file = walk.to_file();
  walk.require_regular(file, false);
  return file;
}

fs::path private_place(const fs::path& path, const Guarded& what) {
  Walk walk(path, what, true);
  const fs::path file = walk.to_file();
  walk.require_regular(file, true);
  return file;
}

}  // namespace attune
