// SPDX-License-Identifier: Apache-2.0
// Makes small relocatable ELF objects byte by byte, valid and invalid, for any machine. Used by
// elf_link_test.cpp.
#pragma once

#include <elf.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attune::testing {

// Sections 1 to 4 are code, constants, data and zeros (64 bytes); symbols are numbered from 1.
struct TinyObject {
  uint16_t machine = EM_X86_64;
  std::string code, constants, data;
  std::vector<Elf64_Sym> symbols{Elf64_Sym{}};
  std::vector<Elf64_Rela> of_code, of_data;
  std::string names{'\0'};

  enum Section : uint16_t { kNone, kCode, kConstants, kData, kZeros };

  uint32_t name(const std::string& text) {
    names += text + '\0';
    return static_cast<uint32_t>(names.size() - text.size() - 1);
  }
  uint32_t symbol(const std::string& text, uint16_t section, uint64_t value = 0,
                  unsigned char type = STT_FUNC, unsigned char binding = STB_GLOBAL) {
    symbols.push_back({name(text), static_cast<unsigned char>(ELF64_ST_INFO(binding, type)), 0,
                       section, value, 0});
    return static_cast<uint32_t>(symbols.size() - 1);
  }
  static Elf64_Rela use(uint64_t place, uint32_t type, uint32_t symbol, int64_t addend = 0) {
    return {place, ELF64_R_INFO(static_cast<uint64_t>(symbol), type), addend};
  }

  std::string bytes() {
    const auto raw = [](const auto& entries) {
      return std::string(reinterpret_cast<const char*>(entries.data()),
                         entries.size() * sizeof entries[0]);
    };
    constexpr uint64_t kUsed = SHF_ALLOC;
    std::vector<Elf64_Shdr> sections(9);
    std::vector<std::string> contents(9);
    const auto put = [&](size_t i, const char* text, uint32_t type, uint64_t flags,
                         std::string with, uint64_t alignment, uint32_t link = 0, uint32_t info = 0,
                         uint64_t entry = 0) {
      sections[i] = {name(text), type, flags, 0, 0, with.size(), link, info, alignment, entry};
      contents[i] = std::move(with);
    };
    put(kCode, ".text", SHT_PROGBITS, kUsed | SHF_EXECINSTR, code, 16);
    put(kConstants, ".rodata", SHT_PROGBITS, kUsed, constants, 16);
    put(kData, ".data", SHT_PROGBITS, kUsed | SHF_WRITE, data, 8);
    put(kZeros, ".bss", SHT_NOBITS, kUsed | SHF_WRITE, "", 32);
    sections[kZeros].sh_size = 64;
    put(5, ".symtab", SHT_SYMTAB, 0, raw(symbols), 8, 8, 1, sizeof(Elf64_Sym));
    put(6, ".rela.text", SHT_RELA, SHF_INFO_LINK, raw(of_code), 8, 5, kCode, sizeof(Elf64_Rela));
    put(7, ".rela.data", SHT_RELA, SHF_INFO_LINK, raw(of_data), 8, 5, kData, sizeof(Elf64_Rela));
    put(8, ".strtab", SHT_STRTAB, 0, names, 1);
    sections[8].sh_size = names.size();
    contents[8] = names;

    Elf64_Ehdr header{};
    const unsigned char identity[] = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
    std::copy(std::begin(identity), std::end(identity), header.e_ident);
    header.e_type = ET_REL;
    header.e_machine = machine;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(sections.size());
    header.e_shstrndx = 8;
    std::string body;
    for (size_t i = 1; i < sections.size(); ++i) {
      body.resize((body.size() + 15) / 16 * 16);
      sections[i].sh_offset = sizeof header + body.size();
      body += contents[i];
    }
    body.resize((body.size() + 15) / 16 * 16);
    header.e_shoff = sizeof header + body.size();
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body +
           raw(sections);
  }
};

}  // namespace attune::testing
