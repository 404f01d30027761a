// SPDX-License-Identifier: Apache-2.0
// Compiler: Source -> KernelImage. One implementation per toolchain: nvrtc_compiler (CUDA),
// clang_compiler (CPU).
#pragma once

#include <string>

#include "generator/compile/image_info.hpp"
#include "generator/core/problem/arch.hpp"
#include "generator/render/renderer.hpp"

namespace attune {

enum class ImageFormat : int { kCubin = 0, kHostObject = 1 };  // frozen: stored

struct KernelImage {
  ImageFormat format = ImageFormat::kCubin;
  std::string bytes;
  std::string entry = kEntryName;
  ImageInfo info;
  std::string log;  // the compiler's messages
  double compile_ms = 0;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  // Returns "nvrtc 13.0" or "clang 19.1.7". Version and options together make the toolchain digest.
  virtual std::string version() const = 0;
  virtual std::string options(const Arch& arch) const = 0;
  // Thread-safe. Throws kCompile with the compiler's first errors, the file name and the arch.
  virtual KernelImage compile(const Source& source, const Arch& arch) const = 0;
  // Throws kCompile if the compiler cannot be opened here. Optional, since compile() opens it as
  // well.
  virtual void open() const {}
};

}  // namespace attune
