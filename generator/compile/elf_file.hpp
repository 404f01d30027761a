// SPDX-License-Identifier: Apache-2.0
// Reads the parts of a 64-bit little-endian ELF file. The file may be damaged or malicious, so any
// part that is not inside it is refused. Used by image_info.cpp and by the loader of host objects
// (generator/compile/cpu/elf_link.cpp).
#pragma once

#include <elf.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace attune {

class ElfFile {
 public:
  // Returns nullopt unless `bytes` begin with an ELF header whose section table is inside them.
  // `bytes` must outlive the object.
  static std::optional<ElfFile> open(std::string_view bytes);

  const Elf64_Ehdr& header() const { return header_; }
  const std::vector<Elf64_Shdr>& sections() const { return sections_; }
  // Returns nullopt if the section is not inside the file. SHT_NOBITS has no contents.
  std::optional<std::string_view> contents(const Elf64_Shdr& section) const;
  // Returns "" if the name is missing.
  std::string_view name(const Elf64_Shdr& section) const;
  // `table` is the section that contains the symbols.
  std::string_view name(const Elf64_Sym& symbol, const Elf64_Shdr& table) const;

  // Returns the entries of a table. Returns nullopt if the table is not inside the file, or if its
  // entries do not have the size of Entry.
  template <class Entry>
  std::optional<std::vector<Entry>> entries(const Elf64_Shdr& section) const {
    const std::optional<std::string_view> bytes = contents(section);
    if (!bytes || section.sh_entsize != sizeof(Entry) || bytes->size() % sizeof(Entry) != 0)
      return std::nullopt;
    std::vector<Entry> entries(bytes->size() / sizeof(Entry));
    if (!entries.empty()) std::memcpy(entries.data(), bytes->data(), bytes->size());
    return entries;
  }

 private:
  explicit ElfFile(std::string_view bytes) : bytes_(bytes) {}
  std::string_view text_at(uint64_t section, uint64_t offset) const;

  std::string_view bytes_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace attune
