// SPDX-License-Identifier: Apache-2.0
// Reading an image's ELF file is the CPU plugin's work, which has LLVM
// (runtime/cpu/elf_reader.cpp); see image_info.hpp.
#include "generator/image_info.hpp"

#include "generator/cpu_toolchain.hpp"

namespace attune {

std::optional<ImageInfo> read_image_info(std::string_view elf, std::string_view entry) {
  const CpuToolchain* toolchain = open_cpu_toolchain();
  return toolchain == nullptr ? std::nullopt : toolchain->image_info(elf, entry);
}

}  // namespace attune
