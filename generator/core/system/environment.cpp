// SPDX-License-Identifier: Apache-2.0
// Reading environment variables; see environment.hpp.
#include "generator/core/system/environment.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace attune {

std::optional<std::string> environment_variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<std::string> home_directory() {
  if (auto home = environment_variable("HOME"); home && home->rfind('/', 0) == 0) return home;
  std::vector<char> text(16384);
  struct passwd entry {};
  struct passwd* user = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, text.data(), text.size(), &user) != 0 || user == nullptr ||
      user->pw_dir[0] != '/')
    return std::nullopt;
  return user->pw_dir;
}

std::vector<std::filesystem::path> split_paths(const std::string& text) {
  std::vector<std::filesystem::path> paths;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    if (end > at) paths.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return paths;
}

}  // namespace attune
