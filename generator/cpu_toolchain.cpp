// SPDX-License-Identifier: Apache-2.0
// Finds and opens the CPU plugin; see cpu_toolchain.hpp.
#include "generator/cpu_toolchain.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <vector>

#include "generator/core/code_folder.hpp"
#include "generator/core/environment.hpp"
#include "generator/core/open_file.hpp"

namespace attune {
namespace {

constexpr const char* kFileName = "libattune_cpu.so";

// The loader looks for a bare name in LD_LIBRARY_PATH too, where an empty or relative folder means
// one below the current directory.
bool loader_path_is_absolute() {
  const std::string path = environment_variable("LD_LIBRARY_PATH").value_or("");
  if (path.empty()) return true;
  std::istringstream folders(path + ":/");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (folder.empty() || folder.front() != '/') return false;
  return true;
}

std::string chosen_file() { return environment_variable("ATTUNE_CPU_PLUGIN").value_or(""); }

// ATTUNE_CPU_PLUGIN alone if set; else beside the program or library that holds this code, ../lib
// from there, the loader's path.
std::vector<std::string> candidates() {
  if (const std::string chosen = chosen_file(); !chosen.empty()) return {chosen};
  std::vector<std::string> paths;
  if (const auto folder = code_folder(reinterpret_cast<const void*>(&open_cpu_toolchain))) {
    paths.push_back((*folder / kFileName).string());
    paths.push_back((folder->parent_path() / "lib" / kFileName).string());
  }
  if (loader_path_is_absolute()) paths.emplace_back(kFileName);
  return paths;
}

struct Opened {
  const CpuToolchain* toolchain = nullptr;
  std::string why;
};

Opened open_first() {
  Opened opened;
  for (const std::string& path : candidates()) {
    const std::string fault = library_fault(path);
    void* library = fault.empty() ? ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) {
      const char* error = fault.empty() ? ::dlerror() : fault.c_str();
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
  if (const std::string chosen = chosen_file(); !chosen.empty()) {
    std::error_code ignored;
    const bool is_missing =
        chosen.find('/') != std::string::npos && !std::filesystem::exists(chosen, ignored);
    opened.why = fmt::format(
        "the CPU target is not available: ATTUNE_CPU_PLUGIN is {}, {}; accepted is the path of {}",
        chosen, is_missing ? "and there is no such file" : "which cannot be used: " + opened.why,
        kFileName);
    return opened;
  }
  opened.why = fmt::format(
      "the CPU target is not available ({}); build attune with llvm-19-dev and libclang-19-dev "
      "installed, or add the wheel attune-cpu",
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
