// SPDX-License-Identifier: Apache-2.0
// What a compiled kernel uses, read from its ELF file with LLVM. Part of the CPU plugin; asked
// through read_image_info.
#pragma once

#include <optional>
#include <string_view>

#include "generator/image_info.hpp"

namespace attune {

// nullopt when the bytes are not a 64-bit little-endian ELF file that defines `entry`.
std::optional<ImageInfo> read_elf(std::string_view elf, std::string_view entry);

}  // namespace attune
