// SPDX-License-Identifier: Apache-2.0
// Finds and opens the CPU plugin; see cpu_toolchain.hpp.
#include "generator/cpu_toolchain.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace attune {
namespace {

constexpr const char* kFileName = "libattune_cpu.so";

// ATTUNE_CPU_PLUGIN alone if set; else beside the program or library that holds this code, ../lib
// from there, the loader's path.
std::vector<std::string> candidates() {
  if (const char* chosen = std::getenv("ATTUNE_CPU_PLUGIN"); chosen != nullptr && *chosen != '\0')
    return {chosen};
  std::vector<std::string> paths;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&open_cpu_toolchain), &info) != 0 &&
      info.dli_fname != nullptr) {
    // A program found through PATH is known to the loader by its bare name.
    const std::filesystem::path name = info.dli_fname;
    std::error_code failed;
    const auto self =
        std::filesystem::canonical(name.has_parent_path() ? name : "/proc/self/exe", failed);
    const auto folder = (failed ? name : self).parent_path();
    paths.push_back((folder / kFileName).string());
    paths.push_back((folder.parent_path() / "lib" / kFileName).string());
  }
  paths.emplace_back(kFileName);
  return paths;
}

struct Opened {
  const CpuToolchain* toolchain = nullptr;
  std::string why;
};

Opened open_first() {
  Opened opened;
  for (const std::string& path : candidates()) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* error = ::dlerror();
      opened.why +=
          fmt::format("{}{}", opened.why.empty() ? "" : "; ", error == nullptr ? path : error);
      continue;
    }
    if (auto function =
            reinterpret_cast<CpuToolchainFunction>(::dlsym(library, kCpuToolchainSymbol))) {
      opened.toolchain = function();
      return opened;
    }
    ::dlclose(library);
    opened.why +=
        fmt::format("{}{} is of another version of attune", opened.why.empty() ? "" : "; ", path);
  }
  opened.why = fmt::format(
      "the CPU target is not available ({}); build attune with llvm-19-dev and libclang-19-dev "
      "installed",
      opened.why);
  return opened;
}

}  // namespace

const CpuToolchain* open_cpu_toolchain(std::string* why) {
  static const Opened opened = open_first();
  if (why != nullptr) *why = opened.why;
  return opened.toolchain;
}

}  // namespace attune
