// SPDX-License-Identifier: Apache-2.0
// The resources of a compiled kernel, read from its ELF file (cubin or host object).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

struct ImageInfo {
  int registers = -1;  // per thread; -1 = unknown (CPU)
  int static_shared_bytes = -1;
  int stack_bytes = -1;
  int spill_store_bytes = -1;  // from the compiler's log
  int spill_load_bytes = -1;
  std::vector<std::string> warnings;  // codes of ptxas warnings: "C7510", ...
};

// Reads registers, shared memory and stack of `entry` from a cubin's .nv.info sections, or the
// stack from a host object. Returns nullopt if the bytes are not an ELF file with that entry.
std::optional<ImageInfo> read_image_info(std::string_view elf, std::string_view entry);
// Adds registers, stack, spills and warning codes found in a ptxas log (image_log.cpp).
void add_log_info(std::string_view log, ImageInfo* info);
// Returns the reason why an image must not be timed ("spills 24 bytes", "C7510: wgmma serialised"),
// or nullopt.
std::optional<std::string> image_fault(const ImageInfo& info);

}  // namespace attune
