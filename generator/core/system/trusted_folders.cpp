// SPDX-License-Identifier: Apache-2.0
// Reads ATTUNE_TRUST; see trusted_folders.hpp.
#include "generator/core/system/trusted_folders.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

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
