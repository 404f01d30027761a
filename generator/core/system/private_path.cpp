// SPDX-License-Identifier: Apache-2.0
// Walks a path from "/", component by component. Each directory is checked before the entry inside
// it is read.
#include "generator/core/system/private_path.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using Status = struct stat;

constexpr int kMostLinks = 40;  // Linux has the same limit

// True if `gid` is the user's private group: the group has the user's name and no other members.
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

enum class Goal { kFile, kPlace, kFolder };  // existing file, possible file, directory to be made

// Walks and checks one path. Uses plain strings, because each launch waits for the walk, and
// fs::path costs more than the system calls.
class Walk {
 public:
  Walk(const fs::path& path, const Guarded& what, Goal goal)
      : path_(path), what_(what), goal_(goal) {}

  // Returns the path without links; the last entry may be missing.
  std::string to_end() {
    std::error_code failed;
    left_ = path_.is_absolute() ? path_.native() : fs::absolute(path_, failed).native();
    if (failed) fail(fmt::format("the current directory is not known: {}", failed.message()));
    root_owner_ = status_of("/").st_uid;
    std::string file;
    while (!left_.empty() && file.empty()) file = step();
    std::string folder = real_.empty() ? "/" : real_;
    if (file.empty() && goal_ != Goal::kFolder)
      return folder;  // require_regular then refuses the directory
    require_private("directory", folder, status_of(folder));
    return file.empty() ? folder : file;
  }

  void require_regular(const std::string& file, bool may_be_missing) const {
    Status status{};
    if (::lstat(file.c_str(), &status) != 0) {
      if (may_be_missing && errno == ENOENT) return;
      fail_on(file);
    }
    if (!S_ISREG(status.st_mode))
      fail(fmt::format("{} is {}, not a regular file", file, kind_of_file(status.st_mode)));
    require_private("file", file, status);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(what_.code, fmt::format("{} {}: {}", what_.noun, path_.string(), reason));
  }
  [[noreturn]] void fail_on(const std::string& entry) const {
    fail(fmt::format("{}: {}", entry, std::strerror(errno)));
  }

  Status status_of(const std::string& entry) const {
    Status status{};
    if (::lstat(entry.c_str(), &status) != 0) fail_on(entry);
    return status;
  }

  std::string next_part() {
    const size_t begin = left_.find_first_not_of('/');
    if (begin == std::string::npos) {
      left_.clear();
      return {};
    }
    const size_t end = std::min(left_.find('/', begin), left_.size());
    std::string part = left_.substr(begin, end - begin);
    left_.erase(0, end);
    return part;
  }

  // Consumes the next component of the path. Returns the file's path if it was the last component,
  // else "".
  std::string step() {
    const std::string part = next_part();
    if (part.empty() || part == ".") return {};
    if (part == "..") {
      real_.erase(std::min(real_.rfind('/'), real_.size()));
      return {};
    }
    std::string entry = real_ + "/" + part;
    const bool is_file = left_.empty() && goal_ != Goal::kFolder;
    Status status{};
    if (::lstat(entry.c_str(), &status) != 0) {
      if (errno != ENOENT) fail_on(entry);
      if (is_file) return entry;
      if (goal_ == Goal::kFile) fail_on(entry);
      if (::mkdir(entry.c_str(), what_.directory_mode) != 0 && errno != EEXIST)
        fail(fmt::format("directory {} cannot be made: {}", entry, std::strerror(errno)));
      status = status_of(entry);
    }
    if (S_ISLNK(status.st_mode)) {
      require_owner("link", entry, status);
      follow(entry);
    } else if (is_file) {
      return entry;
    } else if (S_ISDIR(status.st_mode)) {
      if ((status.st_mode & S_ISVTX) != 0)
        require_owner("directory", entry, status);
      else
        require_private("directory", entry, status);
      real_ = entry;
    } else {
      fail(fmt::format("{} is not a directory", entry));
    }
    return {};
  }

  void follow(const std::string& link) {
    if (++links_ > kMostLinks) fail(fmt::format("{}: {}", link, std::strerror(ELOOP)));
    std::error_code failed;
    const std::string target = fs::read_symlink(link, failed).native();
    if (failed) fail(fmt::format("{}: {}", link, failed.message()));
    if (target.front() == '/') real_.clear();
    left_ = target + left_;
  }

  // Reads the environment only if an entry would be refused: a launch waits for this walk.
  static bool is_trusted(const std::string& entry) {
    return is_in_one_of(trusted_folders(), entry);
  }

  // The owner of "/" can change everything in it anyway. In a user namespace without root, "/"
  // belongs to the uid that represents all unmapped users.
  void require_owner(const char* noun, const std::string& entry, const Status& status) const {
    if (status.st_uid == ::geteuid() || status.st_uid == 0 || status.st_uid == root_owner_) return;
    if (is_trusted(entry)) return;
    fail(
        fmt::format("its {} {} belongs to user {}, neither to you nor to root; stored kernels are "
                    "code, so it is not used (to trust who can write there: ATTUNE_TRUST=FOLDER)",
                    noun, entry, status.st_uid));
  }

  void require_private(const char* noun, const std::string& entry, const Status& status) const {
    require_owner(noun, entry, status);
    if (!others_can_write(status)) return;
    const bool by_all = (status.st_mode & S_IWOTH) != 0;
    if (!by_all && is_trusted(entry)) return;
    // Suggests chmod only for directories of users: root's directories may belong to the system,
    // which chose their mode.
    const bool ours = status.st_uid == ::geteuid() &&
                      (S_ISREG(status.st_mode) || ::geteuid() != 0) &&
                      (status.st_mode & S_ISVTX) == 0;
    fail(
        fmt::format("its {} {} has mode {:04o}, so others can write it; stored kernels are code, "
                    "so it is not used ({}{})",
                    noun, entry, status.st_mode & 07777U,
                    ours ? fmt::format("chmod go-w {}", entry)
                         : std::string("use a folder of your own: mkdir -m 700 FOLDER"),
                    by_all ? "" : "; to trust who can write there: ATTUNE_TRUST=FOLDER"));
  }

  const fs::path& path_;
  const Guarded& what_;
  const Goal goal_;
  std::string left_;  // the rest of the path, not walked yet
  std::string real_;  // the current real directory; empty is "/"
  uid_t root_owner_ = 0;
  int links_ = 0;
};

}  // namespace

fs::path private_file(const fs::path& path, const Guarded& what) {
  Walk walk(path, what, Goal::kFile);
  const std::string file = walk.to_end();
  walk.require_regular(file, false);
  if (what.companion) walk.require_regular(file + what.companion, true);
  return file;
}

fs::path private_place(const fs::path& path, const Guarded& what) {
  Walk walk(path, what, Goal::kPlace);
  const std::string file = walk.to_end();
  walk.require_regular(file, true);
  if (what.companion) walk.require_regular(file + what.companion, true);
  return file;
}

fs::path private_folder(const fs::path& path, const Guarded& what) {
  return Walk(path, what, Goal::kFolder).to_end();
}

namespace {

[[noreturn]] void refuse(const fs::path& folder, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("environment variable ATTUNE_TRUST has \"{}\", {}; each entry must be "
                          "the absolute path of a folder, not \"/\", not a home folder or a "
                          "folder above one, and not writable by all users",
                          folder.string(), what));
}

// Returns the path without links, and without a '/' at its end.
std::string real_path(const fs::path& folder) {
  std::error_code failed;
  fs::path real = fs::weakly_canonical(folder, failed);
  if (failed) real = folder.lexically_normal();
  std::string text = real.native();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::string home_of(uid_t user) {
  std::vector<char> text(16384);
  struct passwd entry {};
  struct passwd* found = nullptr;
  if (::getpwuid_r(user, &entry, text.data(), text.size(), &found) != 0 || !found) return "";
  return found->pw_dir;
}

// Returns home folders that an entry must not contain: this user's, the folder owner's, and /home.
std::vector<std::string> homes_around(const std::string& folder) {
  std::vector<std::string> homes{home_directory().value_or(""), home_of(::geteuid()), "/home"};
  struct stat status {};
  if (::stat(folder.c_str(), &status) == 0) homes.push_back(home_of(status.st_uid));
  return homes;
}

// True if every user may make files in the folder, as in /tmp.
bool is_open_to_all(const std::string& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) != 0;
}

void require_narrow(const fs::path& asked, const std::string& folder) {
  if (folder == "/") refuse(asked, "which is the whole machine");
  for (const std::string& home : homes_around(folder))
    if (home.starts_with('/') && home != "/" && is_in_one_of({folder}, real_path(home)))
      refuse(asked, fmt::format("which holds the home folder {}", home));
  if (is_open_to_all(folder)) refuse(asked, "in which all users may write");
}

}  // namespace

std::vector<std::string> trusted_folders() {
  std::vector<std::string> folders;
  for (const fs::path& asked : split_paths(environment_variable("ATTUNE_TRUST").value_or(""))) {
    if (!asked.is_absolute()) refuse(asked, "which is not absolute");
    folders.push_back(real_path(asked));
    require_narrow(asked, folders.back());
  }
  return folders;
}

bool is_in_one_of(const std::vector<std::string>& folders, const std::string& entry) {
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return entry.starts_with(folder) &&
           (entry.size() == folder.size() || folder == "/" || entry[folder.size()] == '/');
  });
}

}  // namespace attune
