// SPDX-License-Identifier: Apache-2.0
// Trusts no number in the file: each offset and size is compared with the file's end before use.
// See elf_file.hpp.
#include "generator/compile/elf_file.hpp"

#include <bit>

namespace attune {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

bool lies_inside(std::string_view bytes, uint64_t offset, uint64_t size) {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

}  // namespace

std::optional<ElfFile> ElfFile::open(std::string_view bytes) {
  constexpr std::string_view kIdentity(
      "\x7f"
      "ELF\x02\x01",
      6);  // 64 bits, little-endian
  ElfFile file(bytes);
  if (!bytes.starts_with(kIdentity) || bytes.size() < sizeof(Elf64_Ehdr)) return std::nullopt;
  std::memcpy(&file.header_, bytes.data(), sizeof file.header_);
  const Elf64_Ehdr& header = file.header_;
  if (header.e_shoff == 0) return file;
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      !lies_inside(bytes, header.e_shoff, sizeof(Elf64_Shdr)))
    return std::nullopt;
  const char* const table = bytes.data() + header.e_shoff;
  Elf64_Shdr first;
  std::memcpy(&first, table, sizeof first);
  const uint64_t count = header.e_shnum == 0 ? first.sh_size : header.e_shnum;
  if (count > bytes.size() / sizeof(Elf64_Shdr) ||
      !lies_inside(bytes, header.e_shoff, count * sizeof(Elf64_Shdr)))
    return std::nullopt;
  file.sections_.resize(count);
  if (count > 0) std::memcpy(file.sections_.data(), table, count * sizeof(Elf64_Shdr));
  return file;
}

std::optional<std::string_view> ElfFile::contents(const Elf64_Shdr& section) const {
  if (section.sh_type == SHT_NOBITS) return std::string_view();
  if (!lies_inside(bytes_, section.sh_offset, section.sh_size)) return std::nullopt;
  return bytes_.substr(section.sh_offset, section.sh_size);
}

std::string_view ElfFile::name(const Elf64_Shdr& section) const {
  return text_at(header_.e_shstrndx, section.sh_name);
}

std::string_view ElfFile::name(const Elf64_Sym& symbol, const Elf64_Shdr& table) const {
  return text_at(table.sh_link, symbol.st_name);
}

std::string_view ElfFile::text_at(uint64_t section, uint64_t offset) const {
  if (section >= sections_.size() || sections_[section].sh_type != SHT_STRTAB) return {};
  const std::optional<std::string_view> texts = contents(sections_[section]);
  if (!texts || offset >= texts->size()) return {};
  const size_t end = texts->find('\0', offset);
  return end == std::string_view::npos ? std::string_view() : texts->substr(offset, end - offset);
}

}  // namespace attune
