// SPDX-License-Identifier: Apache-2.0
// Reading environment variables; see environment.hpp.
#include "generator/core/system/environment.hpp"

#include <dlfcn.h>
#include <link.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
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

namespace {

namespace fs = std::filesystem;

// Returns the file that the kernel says is mapped at `address`; empty when it does not say.
std::string mapped_file(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0, end = 0;
    int name = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx %*s %*s %*s %*s %n", &first, &end, &name) < 2) continue;
    if (reinterpret_cast<uintptr_t>(address) >= first && reinterpret_cast<uintptr_t>(address) < end)
      return line.substr(static_cast<size_t>(name));
  }
  return {};
}

}  // namespace

std::optional<fs::path> code_folder(const void* address) {
  Dl_info info{};
  link_map* library = nullptr;
  if (::dladdr1(address, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) == 0 ||
      library == nullptr)
    return std::nullopt;
  // dladdr reports argv[0] for the program itself, so /proc/self/exe is used instead. A library has
  // the name that it was loaded by, which may be relative to the current directory at that time.
  std::string file = library->l_name;
  if (file.empty()) file = "/proc/self/exe";
  if (file.front() != '/') file = mapped_file(address);
  if (file.empty() || file.front() != '/') return std::nullopt;
  std::error_code failed;
  const fs::path self = fs::canonical(file, failed);
  if (failed) return std::nullopt;
  return self.parent_path();
}

}  // namespace attune
