// SPDX-License-Identifier: Apache-2.0
// Checks every number of the object before it is used, since an object may come from a damaged
// file. See elf_link.hpp.
#include "generator/compile/cpu/elf_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // limit for all sections in memory
constexpr size_t kMostAlignment = 4096;
constexpr size_t kStubBytes = 16, kSlotBytes = 8;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, why); }

size_t aligned(size_t at, size_t alignment) { return (at + alignment - 1) / alignment * alignment; }

std::string machine_name(uint16_t machine) {
  if (machine == EM_X86_64) return "x86-64";
  if (machine == EM_AARCH64) return "AArch64";
  return fmt::format("machine {}", machine);
}

ElfFile checked_file(std::string_view object, uint16_t machine) {
  std::optional<ElfFile> elf = ElfFile::open(object);
  if (!elf) refuse("it is not a 64-bit ELF file, or it was cut off");
  if (elf->header().e_machine != machine)
    refuse(fmt::format("it is {} code; must be {}", machine_name(elf->header().e_machine),
                       machine_name(machine)));
  if (elf->header().e_type != ET_REL) refuse("it is not a relocatable object");
  return std::move(*elf);
}

bool may_be_loaded(uint32_t type) {
  constexpr uint32_t kUnwind = 0x70000001;  // SHT_X86_64_UNWIND
  return type == SHT_PROGBITS || type == SHT_NOBITS || type == SHT_NOTE || type == kUnwind;
}

// Writes a jump to the address in the last eight bytes.
void write_stub(uint16_t machine, uint64_t address, char* stub) {
  constexpr unsigned char kX86[8] = {0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc};  // jmp *2(%rip)
  constexpr unsigned char kAarch64[8] = {0x50, 0,    0,    0x58,           // ldr x16, .+8
                                         0,    0x02, 0x1f, 0xd6};          // br x16
  std::memcpy(stub, machine == EM_X86_64 ? kX86 : kAarch64, 8);
  std::memcpy(stub + 8, &address, sizeof address);
}

}  // namespace

LinkedObject::LinkedObject(std::string_view object, uint16_t machine,
                           std::span<const LibraryFunction> functions, size_t page_bytes)
    : elf_(checked_file(object, machine)), machine_(machine), functions_(functions) {
  for (size_t i = 0; i < elf_.sections().size(); ++i) place_section(i);
  read_symbols();
  for (const Elf64_Shdr& section : elf_.sections()) read_relocations(section);
  add_stubs_and_slots();
  lay_out(page_bytes);
}

void LinkedObject::place_section(size_t index) {
  const Elf64_Shdr& section = elf_.sections()[index];
  if ((section.sh_flags & SHF_ALLOC) == 0) return;
  const bool is_code = (section.sh_flags & SHF_EXECINSTR) != 0;
  const bool is_data = (section.sh_flags & SHF_WRITE) != 0;
  if (!may_be_loaded(section.sh_type) || (is_code && is_data) ||
      (section.sh_flags & (SHF_TLS | SHF_COMPRESSED)) != 0)
    refuse(fmt::format("section {} has type {:#x} and flags {:#x}, which are not loaded",
                       elf_.name(section), section.sh_type, section.sh_flags));
  const uint64_t alignment = std::max<uint64_t>(section.sh_addralign, 1);
  if (!std::has_single_bit(alignment) || alignment > kMostAlignment)
    refuse(fmt::format("section {} is aligned to {} bytes; must be a power of two up to {}",
                       elf_.name(section), alignment, kMostAlignment));
  if (!elf_.contents(section))
    refuse(fmt::format("section {} is not inside the file: it was cut off", elf_.name(section)));
  const Kind kind = is_code ? kCode : is_data ? kData : kConstants;
  const size_t at = aligned(segments_[kind].size, alignment);
  if (at > kMostBytes || section.sh_size > kMostBytes - at)
    refuse(fmt::format("it takes more than {} bytes of memory", kMostBytes));
  segments_[kind].size = at + section.sh_size;
  placed_.emplace(index, Placed{&section, kind, at});
}

void LinkedObject::read_symbols() {
  for (const Elf64_Shdr& section : elf_.sections()) {
    if (section.sh_type != SHT_SYMTAB) continue;
    std::optional<std::vector<Elf64_Sym>> symbols = elf_.entries<Elf64_Sym>(section);
    if (!symbols || symbol_table_ != nullptr) refuse("its table of symbols is damaged");
    symbols_ = std::move(*symbols);
    symbol_table_ = &section;
  }
  if (symbol_table_ == nullptr) refuse("it has no table of symbols");
}

void LinkedObject::read_relocations(const Elf64_Shdr& table) {
  if (table.sh_type != SHT_RELA && table.sh_type != SHT_REL) return;
  const auto target = placed_.find(table.sh_info);
  if (target == placed_.end()) return;
  const Placed& in = target->second;
  const auto entries = elf_.entries<Elf64_Rela>(table);
  if (!entries || table.sh_type == SHT_REL || in.section->sh_type == SHT_NOBITS)
    refuse(fmt::format("the relocations {} are damaged", elf_.name(table)));
  for (const Elf64_Rela& entry : *entries) {
    const auto type = static_cast<uint32_t>(ELF64_R_TYPE(entry.r_info));
    const auto symbol = static_cast<uint32_t>(ELF64_R_SYM(entry.r_info));
    const size_t size = relocated_bytes(machine_, type);
    if (in.section->sh_size < size || entry.r_offset > in.section->sh_size - size)
      refuse(fmt::format("a relocation of {} lies outside it", elf_.name(*in.section)));
    check_symbol(symbol);
    if (machine_ == EM_AARCH64 && needs_slot(machine_, type) && entry.r_addend != 0)
      refuse(fmt::format("a relocation of {} has type {} and addend {}; must have addend 0",
                         elf_.name(*in.section), type, entry.r_addend));
    uses_.push_back({in, entry.r_offset, type, symbol, entry.r_addend});
  }
}

void LinkedObject::check_symbol(uint32_t number) const {
  if (number == 0 || number >= symbols_.size()) refuse("a relocation has no symbol");
  const Elf64_Sym& symbol = symbols_[number];
  const std::string name(elf_.name(symbol, *symbol_table_));
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  if (type == STT_TLS || type == STT_GNU_IFUNC)
    refuse(fmt::format("symbol {} is of type {}; must not be {} (TLS) or {} (IFUNC)", name, type,
                       STT_TLS, STT_GNU_IFUNC));
  if (symbol.st_shndx == SHN_ABS) return;
  if (symbol.st_shndx == SHN_UNDEF) {
    if (library_function(number) == nullptr)
      refuse(fmt::format("it refers to {}, which kernels may not use", name));
    return;
  }
  const auto placed = placed_.find(symbol.st_shndx);
  if (placed == placed_.end() || symbol.st_value > placed->second.section->sh_size)
    refuse(fmt::format("symbol {} lies outside the loaded sections", name));
}

const LibraryFunction* LinkedObject::library_function(uint32_t symbol) const {
  const std::string_view name = elf_.name(symbols_[symbol], *symbol_table_);
  const auto found = std::find_if(functions_.begin(), functions_.end(),
                                  [&](const LibraryFunction& f) { return f.name == name; });
  return found == functions_.end() ? nullptr : &*found;
}

// Calls to library functions go through stubs in the object's memory, since a function of another
// library may be beyond the range of a call instruction.
void LinkedObject::add_stubs_and_slots() {
  const auto add = [](size_t bytes, uint32_t symbol, Segment* segment, auto* places) {
    const size_t at = aligned(segment->size, bytes);
    if (places->emplace(symbol, at).second) segment->size = at + bytes;
  };
  for (const Use& use : uses_) {
    if (symbols_[use.symbol].st_shndx == SHN_UNDEF)
      add(kStubBytes, use.symbol, &segments_[kCode], &stubs_);
    if (needs_slot(machine_, use.type))
      add(kSlotBytes, use.symbol, &segments_[kConstants], &slots_);
  }
}

void LinkedObject::lay_out(size_t page_bytes) {
  for (Segment& segment : segments_) {
    segment.begin = bytes_;
    bytes_ += aligned(segment.size, page_bytes);
  }
}

uint64_t LinkedObject::address_of(uint32_t number, uint64_t base) const {
  const Elf64_Sym& symbol = symbols_[number];
  if (symbol.st_shndx == SHN_ABS) return symbol.st_value;
  if (symbol.st_shndx == SHN_UNDEF) return base + segments_[kCode].begin + stubs_.at(number);
  return base + offset_of(placed_.at(symbol.st_shndx)) + symbol.st_value;
}

void LinkedObject::write(char* memory, uint64_t address) const {
  for (const auto& [index, placed] : placed_) {
    const std::string_view contents = elf_.contents(*placed.section).value();
    if (!contents.empty())
      std::memcpy(memory + offset_of(placed), contents.data(), contents.size());
  }
  for (const auto& [symbol, at] : stubs_)
    write_stub(machine_, library_function(symbol)->address, memory + segments_[kCode].begin + at);
  for (const auto& [symbol, at] : slots_) {
    const uint64_t value = address_of(symbol, address);
    std::memcpy(memory + segments_[kConstants].begin + at, &value, sizeof value);
  }
  for (const Use& use : uses_) {
    const size_t place = offset_of(use.in) + use.offset;
    Relocation relocation{use.type, address + place, address_of(use.symbol, address), use.addend};
    if (needs_slot(machine_, use.type))
      relocation.slot = address + segments_[kConstants].begin + slots_.at(use.symbol);
    relocate(machine_, relocation, memory + place);
  }
}

const Elf64_Sym* LinkedObject::find(std::string_view name) const {
  for (const Elf64_Sym& symbol : symbols_)
    if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL &&
        elf_.name(symbol, *symbol_table_) == name)
      return &symbol;
  return nullptr;
}

size_t LinkedObject::function(std::string_view name) const {
  const Elf64_Sym* const symbol = find(name);
  if (symbol == nullptr) refuse(fmt::format("it has no function {}", name));
  const auto found = placed_.find(symbol->st_shndx);
  const unsigned type = ELF64_ST_TYPE(symbol->st_info);
  if (found == placed_.end() || found->second.kind != kCode ||
      (type != STT_FUNC && type != STT_NOTYPE) ||
      symbol->st_value >= found->second.section->sh_size)
    refuse(fmt::format("{} names data, not a function", name));
  return offset_of(found->second) + symbol->st_value;
}

}  // namespace attune
