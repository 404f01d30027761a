// SPDX-License-Identifier: Apache-2.0
// A plugin in front of libattune_clang.so, for test runs (ATTUNE_CPU_PLUGIN). It compiles each
// source once per build of the real plugin, and keeps the image in the folder of
// ATTUNE_TEST_IMAGES. See kept_images.hpp.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>

#include "generator/compile/clang_compiler.hpp"
#include "generator/core/system/error.hpp"
#include "tests/support/kept_images.hpp"

namespace attune {
namespace {

// Stands at the start of a kept file. The log follows, then the bytes of the image.
struct KeptHeader {
  double compile_ms;
  size_t log_bytes;
};

const ClangPlugin& real_plugin() {
  static const ClangPlugin& opened = []() -> const ClangPlugin& {
    void* const library = ::dlopen(ATTUNE_REAL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    void* const function = library == nullptr ? nullptr : ::dlsym(library, kClangPluginSymbol);
    if (function == nullptr)
      throw Error(ErrorCode::kCompile,
                  fmt::format("{} cannot be opened: {}", ATTUNE_REAL_PLUGIN, ::dlerror()));
    return *reinterpret_cast<ClangPluginFunction>(function)();
  }();
  return opened;
}

// Returns a text that changes when the real plugin is built again.
const std::string& build_of_plugin() {
  static const std::string text = [] {
    struct stat file = {};
    ::stat(ATTUNE_REAL_PLUGIN, &file);
    return fmt::format("{} {} {}.{}", file.st_ino, file.st_size, file.st_mtim.tv_sec,
                       file.st_mtim.tv_nsec);
  }();
  return text;
}

std::string name_of(const Source& source, const Arch& arch) {
  std::vector<std::string> parts{build_of_plugin(), ATTUNE_CLANG_VERSION, arch.name(),
                                 source.file_name, source.text};
  for (std::string& argument : clang_arguments(arch)) parts.push_back(std::move(argument));
  return kept_image_name(parts);
}

bool read_kept(const std::string& name, KernelImage* image) {
  const std::optional<std::string> bytes = kept_image(name);
  if (!bytes) return false;
  KeptHeader header;
  std::memcpy(&header, bytes->data(), sizeof header);
  image->format = ImageFormat::kHostObject;
  image->compile_ms = header.compile_ms;
  image->log = bytes->substr(sizeof header, header.log_bytes);
  image->bytes = bytes->substr(sizeof header + header.log_bytes);
  return true;
}

// Compiles, or reads what an earlier call kept. A refused source is compiled each time.
void compile(const Source& source, const Arch& arch, KernelImage* image) {
  if (arch.target != Target::kCpu || kept_images_folder().empty()) {
    real_plugin().compile(source, arch, image);
    return;
  }
  const std::string name = name_of(source, arch);
  if (read_kept(name, image)) return;
  real_plugin().compile(source, arch, image);
  const KeptHeader header{image->compile_ms, image->log.size()};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  keep_image(name, bytes + image->log + image->bytes);
}

}  // namespace
}  // namespace attune

extern "C" __attribute__((visibility("default"))) const attune::ClangPlugin*
attune_clang_plugin_2() {
  static constexpr attune::ClangPlugin plugin{ATTUNE_CLANG_VERSION, &attune::compile};
  return &plugin;
}
