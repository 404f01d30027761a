// SPDX-License-Identifier: Apache-2.0
// Finding the folder of the code that runs; see code_folder.hpp.
#include "generator/core/system/code_folder.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace attune {
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
