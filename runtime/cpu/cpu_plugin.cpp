// SPDX-License-Identifier: Apache-2.0
// libattune_cpu.so: the CPU target behind generator/cpu_toolchain.hpp. It links the few parts of
// LLVM that load code, so that opening it and launching a stored kernel is cheap; clang comes with
// libattune_clang.so, opened for the first compile.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <filesystem>

#include "generator/clang_compiler.hpp"
#include "generator/core/code_folder.hpp"
#include "generator/core/error.hpp"
#include "generator/cpu_toolchain.hpp"
#include "runtime/cpu/elf_reader.hpp"
#include "runtime/cpu/host_arch.hpp"
#include "runtime/cpu/object_loader.hpp"

namespace attune {
namespace {

// Address space that opening LLVM and clang takes. Their initialisers run meanwhile, and end the
// process where memory ends; so it is asked for before.
constexpr size_t kClangBytes = size_t{272} << 20;

void require_address_space() {
  void* const space =
      ::mmap(nullptr, kClangBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED)
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("clang is not opened, so no CPU kernel can be compiled here: it takes "
                            "{} MB of address space, which this process has not left",
                            kClangBytes >> 20));
  ::munmap(space, kClangBytes);
}

// Opens libattune_clang.so beside this library and keeps it for the life of the process.
ClangCompileFunction open_clang() {
  require_address_space();
  const auto folder = code_folder(reinterpret_cast<const void*>(&open_clang));
  if (!folder)
    throw Error(ErrorCode::kCompile,
                "clang cannot be opened: the folder of libattune_cpu.so is not known");
  const std::filesystem::path path = *folder / "libattune_clang.so";
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* function = library == nullptr ? nullptr : ::dlsym(library, kClangCompileSymbol);
  if (function != nullptr) return reinterpret_cast<ClangCompileFunction>(function);
  const char* error = ::dlerror();
  throw Error(ErrorCode::kCompile, fmt::format("clang cannot be opened, so no CPU kernel can be "
                                               "compiled here: {}; install libclang-cpp19",
                                               error == nullptr ? path.string() : error));
}

class LazyClangCompiler final : public Compiler {
 public:
  std::string version() const override { return clang_version(); }
  std::string options(const Arch& arch) const override {
    return fmt::format("{}", fmt::join(clang_arguments(arch), " "));
  }
  KernelImage compile(const Source& source, const Arch& arch) const override {
    KernelImage image;
    clang()(source, arch, &image);
    if (auto info = read_elf(image.bytes, image.entry)) image.info = *info;
    return image;
  }
  void open() const override { clang(); }

 private:
  static ClangCompileFunction clang() {
    static const ClangCompileFunction opened = open_clang();
    return opened;
  }
};

class LlvmCpuToolchain final : public CpuToolchain {
 public:
  Arch host_arch() const override { return host_arch_; }
  const Compiler& compiler() const override { return compiler_; }
  std::unique_ptr<HostKernel> load(std::string_view object,
                                   const std::vector<std::string>& entries) const override {
    return load_object(object, entries);
  }
  std::optional<ImageInfo> image_info(std::string_view elf, std::string_view entry) const override {
    return read_elf(elf, entry);
  }
  bool knows_cpu(std::string_view name) const override { return is_cpu_name(name); }

 private:
  const Arch host_arch_ = detect_host_arch();
  const LazyClangCompiler compiler_;
};

}  // namespace
}  // namespace attune

extern "C" __attribute__((visibility("default"))) const attune::CpuToolchain*
attune_cpu_toolchain_4() {
  static const attune::LlvmCpuToolchain toolchain;
  return &toolchain;
}
