// SPDX-License-Identifier: Apache-2.0
// The CPU toolchain, and its compiler: finds and opens the plugin libattune_clang.so, which holds
// clang and LLVM. Looks for it only at paths that belong to attune, so that no other file can take
// its place. The rest is in generator/compile/cpu/. See cpu_toolchain.hpp.
#include "generator/compile/cpu_toolchain.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <filesystem>
#include <sstream>
#include <vector>

#include "generator/compile/clang_compiler.hpp"
#include "generator/compile/cpu/host_arch.hpp"
#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"

namespace attune {
namespace {

constexpr const char* kFileName = "libattune_clang.so";

// Address space that LLVM and clang need when opened. Their initialisers end the process if memory
// runs out, so it is checked first.
constexpr size_t kClangBytes = size_t{272} << 20;

void require_address_space() {
  void* const space =
      ::mmap(nullptr, kClangBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED)
    throw Error(
        ErrorCode::kOutOfMemory,
        fmt::format("clang is not opened, so no CPU kernel can be compiled here: this process "
                    "does not have the {} MB of address space that clang takes",
                    kClangBytes >> 20));
  ::munmap(space, kClangBytes);
}

// True if LD_LIBRARY_PATH has no relative entry. The loader searches it for bare names, and an
// empty or relative entry means a folder below the current directory.
bool loader_path_is_absolute() {
  const std::string path = environment_variable("LD_LIBRARY_PATH").value_or("");
  if (path.empty()) return true;
  std::istringstream folders(path + ":/");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (folder.empty() || folder.front() != '/') return false;
  return true;
}

std::string chosen_file() { return environment_variable("ATTUNE_CPU_PLUGIN").value_or(""); }

// Returns the plugin's possible paths. ATTUNE_CPU_PLUGIN, if set, is the only one. Otherwise: the
// folder of the program or library with this code, ../lib from there, and the loader's path.
std::vector<std::string> candidates() {
  if (const std::string chosen = chosen_file(); !chosen.empty()) return {chosen};
  std::vector<std::string> paths;
  if (const auto folder = code_folder(reinterpret_cast<const void*>(&cpu_toolchain))) {
    paths.push_back((*folder / kFileName).string());
    paths.push_back((folder->parent_path() / "lib" / kFileName).string());
  }
  if (loader_path_is_absolute()) paths.emplace_back(kFileName);
  return paths;
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return path.find('/') != std::string::npos && std::filesystem::exists(path, ignored);
}

std::string advice(const std::string& tried) {
  if (const std::string chosen = chosen_file(); !chosen.empty())
    return fmt::format(
        "no CPU kernel can be compiled here: ATTUNE_CPU_PLUGIN is {}, {}; must be the path of "
        "{}",
        chosen,
        chosen.find('/') != std::string::npos && !is_file(chosen)
            ? "and there is no such file"
            : "which cannot be used: " + tried,
        kFileName);
  return fmt::format(
      "no CPU kernel can be compiled here ({}); for an attune that pip installed, `pip install "
      "./runtime/python/cpu` in its source tree adds the compiler; for another build, install "
      "llvm-19-dev and libclang-19-dev first; kernels of bundles and stores run without it",
      tried);
}

// Opens the plugin and keeps it for the life of the process. Throws kCompile.
const ClangPlugin& open_plugin() {
  require_address_space();
  std::string tried;
  for (const std::string& path : candidates()) {
    std::string failed = library_fault(path);
    void* const library = failed.empty() ? ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) {
      const char* const error = failed.empty() ? ::dlerror() : nullptr;
      if (failed.empty()) failed = error == nullptr ? path : error;
    } else {
      if (void* const function = ::dlsym(library, kClangPluginSymbol))
        return *reinterpret_cast<ClangPluginFunction>(function)();
      ::dlclose(library);
      failed = path + " is of another version of attune";
    }
    tried += (tried.empty() ? "" : "; ") + failed;
  }
  throw Error(ErrorCode::kCompile, advice(tried));
}

const ClangPlugin& plugin() {
  static const ClangPlugin& opened = open_plugin();
  return opened;
}

// Opens the plugin at the first compile or call of version(). After a failure the next call tries
// again.
class PluginCompiler final : public Compiler {
 public:
  std::string version() const override { return plugin().version; }
  std::string options(const Arch& arch) const override {
    return fmt::format("{}", fmt::join(clang_arguments(arch), " "));
  }
  KernelImage compile(const Source& source, const Arch& arch) const override {
    KernelImage image{.entry = source.entry};
    plugin().compile(source, arch, &image);
    if (auto info = read_image_info(image.bytes, image.entry)) image.info = *info;
    return image;
  }
  void open() const override { plugin(); }
};

// True if the plugin can be found. Otherwise `why` gets the places tried and how to install it.
bool plugin_is_here(std::string* why) {
  for (const std::string& path : candidates())
    if (is_file(path)) return true;
  try {
    plugin();  // a bare name: only opening shows if the loader finds it
    return true;
  } catch (const Error& error) {
    if (why != nullptr) *why = error.what();
    return false;
  }
}

}  // namespace

CpuToolchain::CpuToolchain()
    : host_arch_(detect_host_arch()), compiler_(std::make_unique<PluginCompiler>()) {}

bool CpuToolchain::knows_cpu(std::string_view name) const { return is_cpu_name(name); }

const CpuToolchain& cpu_toolchain() {
  static const CpuToolchain toolchain;
  return toolchain;
}

const CpuToolchain* compiling_toolchain(std::string* why) {
  return plugin_is_here(why) ? &cpu_toolchain() : nullptr;
}

}  // namespace attune
