// SPDX-License-Identifier: Apache-2.0
// Cubins keep their resources in .nv.info, a list of attributes (layout below, as `cuobjdump -elf`
// shows it); host objects made with -fstack-size-section keep the frame of each function in
// .stack_sizes. See elf_reader.hpp.
#include "runtime/cpu/elf_reader.hpp"

#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Object/ELF.h>
#include <llvm/Support/DataExtractor.h>

#include <algorithm>
#include <string>

namespace attune {
namespace {

using Elf = llvm::object::ELF64LEFile;
using Bytes = llvm::ArrayRef<uint8_t>;

// | byte | .nv.info attribute                                    |
// |------|-------------------------------------------------------|
// | 0    | format: 4 = a payload follows, else the value is here |
// | 1    | attribute                                             |
// | 2..3 | payload size, or the value                            |
// | 4..  | payload; for the attributes below {symbol, value}     |
constexpr uint8_t kFormatPayload = 0x04;
constexpr uint8_t kAttributeFrameSize = 0x11;
constexpr uint8_t kAttributeRegisterCount = 0x2f;
// From sm_90 on a kernel's shared memory begins with 1 KiB that the system keeps, if the kernel has
// any; ptxas does not count it.
constexpr int kReservedSharedBytes = 1024;

// The value of an expected thing, its error dropped.
template <class T>
std::optional<T> value_of(llvm::Expected<T> expected) {
  if (expected) return std::move(*expected);
  llvm::consumeError(expected.takeError());
  return std::nullopt;
}

class ElfReader {
 public:
  ElfReader(const Elf& elf, std::string_view entry) : elf_(elf), entry_(entry) {}

  std::optional<ImageInfo> read() {
    const auto sections = value_of(elf_.sections());
    if (!sections || !find_entry(*sections)) return std::nullopt;
    ImageInfo info;
    const bool cubin = elf_.getHeader().e_machine == llvm::ELF::EM_CUDA;
    if (cubin) info.static_shared_bytes = 0;
    for (const auto& section : *sections) {
      const auto name = value_of(elf_.getSectionName(section));
      if (!name) continue;
      if (cubin && *name == ".nv.shared." + entry_)
        info.static_shared_bytes += static_cast<int>(section.sh_size);
      if (cubin && *name == ".nv.shared.reserved.0")
        info.static_shared_bytes -= kReservedSharedBytes;
      const bool wanted = *name == (cubin ? ".nv.info" : ".stack_sizes");
      if (!wanted) continue;
      const auto bytes = value_of(elf_.getSectionContents(section));
      if (bytes) cubin ? read_attributes(*bytes, &info) : add_frames(*bytes, &info);
    }
    if (cubin) info.static_shared_bytes = std::max(info.static_shared_bytes, 0);
    return info;
  }

 private:
  template <class Sections>
  bool find_entry(const Sections& sections) {
    for (const auto& section : sections) {
      if (section.sh_type != llvm::ELF::SHT_SYMTAB) continue;
      const auto symbols = value_of(elf_.symbols(&section));
      const auto names = value_of(elf_.getStringTableForSymtab(section));
      if (!symbols || !names) continue;
      for (size_t i = 0; i < symbols->size(); ++i) {
        const auto& symbol = (*symbols)[i];
        const auto name = value_of(symbol.getName(*names));
        if (!name || *name != entry_ || symbol.st_shndx == llvm::ELF::SHN_UNDEF) continue;
        entry_index_ = static_cast<uint32_t>(i);
        return true;
      }
    }
    return false;
  }

  void read_attributes(Bytes bytes, ImageInfo* info) const {
    const llvm::DataExtractor data(bytes, /*IsLittleEndian=*/true, /*AddressSize=*/8);
    for (uint64_t at = 0; data.isValidOffsetForDataOfSize(at, 4);) {
      const uint8_t format = data.getU8(&at);
      const uint8_t attribute = data.getU8(&at);
      const uint16_t size = data.getU16(&at);
      if (format != kFormatPayload) continue;
      uint64_t payload = at;
      at += size;
      if (size < 8 || !data.isValidOffsetForDataOfSize(payload, 8) ||
          data.getU32(&payload) != entry_index_)
        continue;
      const int value = static_cast<int>(data.getU32(&payload));
      if (attribute == kAttributeRegisterCount) info->registers = value;
      if (attribute == kAttributeFrameSize) info->stack_bytes = value;
    }
  }

  // Kernels do not recurse, so the sum over all functions bounds the stack that the entry can use.
  static void add_frames(Bytes bytes, ImageInfo* info) {
    const llvm::DataExtractor data(bytes, /*IsLittleEndian=*/true, /*AddressSize=*/8);
    if (info->stack_bytes < 0) info->stack_bytes = 0;
    for (uint64_t at = 0; data.isValidOffsetForDataOfSize(at, 9);) {
      at += 8;  // the function's address
      info->stack_bytes += static_cast<int>(data.getULEB128(&at));
    }
  }

  const Elf& elf_;
  std::string entry_;
  uint32_t entry_index_ = 0;
};

}  // namespace

std::optional<ImageInfo> read_elf(std::string_view elf, std::string_view entry) {
  const llvm::StringRef bytes(elf.data(), elf.size());
  if (!bytes.starts_with("\x7f"
                         "ELF\x02\x01"))
    return std::nullopt;
  const auto file = value_of(Elf::create(bytes));
  return file ? ElfReader(*file, entry).read() : std::nullopt;
}

}  // namespace attune
