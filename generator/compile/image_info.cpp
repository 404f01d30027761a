// SPDX-License-Identifier: Apache-2.0
// Reads resources from images. Cubins keep them in .nv.info, a list of attributes (layout below, as
// `cuobjdump -elf` shows it). Host objects made with -fstack-size-section keep each function's
// frame in .stack_sizes. See image_info.hpp.
#include "generator/compile/image_info.hpp"

#include <algorithm>
#include <cstring>

#include "generator/compile/elf_file.hpp"

namespace attune {
namespace {

// | byte | .nv.info attribute                                    |
// |------|-------------------------------------------------------|
// | 0    | format: 4 = a payload follows, else the value is here |
// | 1    | attribute                                             |
// | 2..3 | payload size, or the value                            |
// | 4..  | payload; for the attributes below {symbol, value}     |
constexpr uint8_t kFormatPayload = 0x04;
constexpr uint8_t kAttributeFrameSize = 0x11;
constexpr uint8_t kAttributeRegisterCount = 0x2f;
// From sm_90 on, the system reserves the first 1 KiB of a kernel's shared memory, if the kernel has
// any; ptxas does not count it.
constexpr int kReservedSharedBytes = 1024;

template <class Number>
Number number_at(std::string_view bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

std::optional<uint32_t> index_of(std::string_view entry, const ElfFile& elf) {
  for (const Elf64_Shdr& section : elf.sections()) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto symbols = elf.entries<Elf64_Sym>(section);
    if (!symbols) continue;
    for (size_t i = 0; i < symbols->size(); ++i)
      if ((*symbols)[i].st_shndx != SHN_UNDEF && elf.name((*symbols)[i], section) == entry)
        return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

void read_attributes(std::string_view bytes, uint32_t entry, ImageInfo* info) {
  for (size_t at = 0; bytes.size() - at >= 4;) {
    const auto format = number_at<uint8_t>(bytes, at);
    const auto attribute = number_at<uint8_t>(bytes, at + 1);
    const size_t size = number_at<uint16_t>(bytes, at + 2);
    at += 4;
    if (format != kFormatPayload) continue;
    if (size > bytes.size() - at) return;
    if (size >= 8 && number_at<uint32_t>(bytes, at) == entry) {
      const auto value = static_cast<int>(number_at<uint32_t>(bytes, at + 4));
      if (attribute == kAttributeRegisterCount) info->registers = value;
      if (attribute == kAttributeFrameSize) info->stack_bytes = value;
    }
    at += size;
  }
}

// Adds up the frames of all functions. Kernels do not recurse, so the sum bounds the stack of the
// entry.
void add_frames(std::string_view bytes, ImageInfo* info) {
  uint64_t sum = static_cast<uint64_t>(std::max(info->stack_bytes, 0));
  for (size_t at = 0; bytes.size() - at > 8;) {
    at += 8;  // the function's address
    uint64_t frame = 0;
    bool more = true;
    for (unsigned shift = 0; more && at < bytes.size(); shift += 7) {  // ULEB128
      const auto byte = number_at<uint8_t>(bytes, at++);
      if (shift < 32) frame |= static_cast<uint64_t>(byte & 0x7fU) << shift;
      more = (byte & 0x80U) != 0;
    }
    sum += frame;
  }
  info->stack_bytes = static_cast<int>(std::min<uint64_t>(sum, INT32_MAX));
}

}  // namespace

std::optional<ImageInfo> read_image_info(std::string_view bytes, std::string_view entry) {
  const std::optional<ElfFile> elf = ElfFile::open(bytes);
  if (!elf) return std::nullopt;
  const std::optional<uint32_t> index = index_of(entry, *elf);
  if (!index) return std::nullopt;
  ImageInfo info;
  const bool cubin = elf->header().e_machine == EM_CUDA;
  int64_t shared = 0;
  for (const Elf64_Shdr& section : elf->sections()) {
    const std::string name(elf->name(section));
    if (cubin && name == ".nv.shared." + std::string(entry))
      shared += static_cast<int64_t>(std::min<uint64_t>(section.sh_size, INT32_MAX));
    if (cubin && name == ".nv.shared.reserved.0") shared -= kReservedSharedBytes;
    if (name != (cubin ? ".nv.info" : ".stack_sizes")) continue;
    const std::optional<std::string_view> contents = elf->contents(section);
    if (!contents) continue;
    cubin ? read_attributes(*contents, *index, &info) : add_frames(*contents, &info);
  }
  if (cubin) info.static_shared_bytes = static_cast<int>(std::clamp<int64_t>(shared, 0, INT32_MAX));
  return info;
}

}  // namespace attune
