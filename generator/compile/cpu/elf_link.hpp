// SPDX-License-Identifier: Apache-2.0
// Links one relocatable object into memory, as `ld` would, for a given address. Runs no code, so
// objects of either machine can be linked anywhere. Used by object_loader.cpp.
//
// | segment   | contents                                                               |
// |-----------|------------------------------------------------------------------------|
// | code      | sections with instructions, then a stub for each library function      |
// | constants | read-only sections, then addresses that the code loads                 |
// | data      | sections that the code writes                                          |
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/compile/elf_file.hpp"

namespace attune {

// The relocations that clang writes for position-independent kernels of the small code model, on
// x86-64 and AArch64 (relocation.cpp).

// A place in an object that stores an address, in the terms of the psABI documents: "S + A - P".
struct Relocation {
  uint32_t type = 0;
  uint64_t place = 0;   // P: the address of the place when running
  uint64_t symbol = 0;  // S
  int64_t addend = 0;   // A
  uint64_t slot = 0;    // G: address of the slot with the symbol's address; only if needs_slot
};

// Returns the number of bytes that a relocation writes. Throws kInvalidArgument for an unknown
// type.
size_t relocated_bytes(uint16_t machine, uint32_t type);
// True if the code loads the symbol's address from a slot.
bool needs_slot(uint16_t machine, uint32_t type);
// Writes the value to `field`, the contents at `place`. Throws kInvalidArgument if the value does
// not fit.
void relocate(uint16_t machine, const Relocation& relocation, char* field);

// A function that objects may call.
struct LibraryFunction {
  std::string_view name;
  uint64_t address;
};

class LinkedObject {
 public:
  enum Kind { kCode, kConstants, kData, kKinds };
  struct Segment {
    size_t begin = 0, size = 0;  // in the memory; begin is a multiple of page_bytes
  };

  // Reads the object and lays it out. `object` and `functions` must outlive it. Throws
  // kInvalidArgument for bytes that are not a relocatable object of `machine` (EM_X86_64,
  // EM_AARCH64), that are damaged, or that refer to functions outside `functions`.
  LinkedObject(std::string_view object, uint16_t machine,
               std::span<const LibraryFunction> functions, size_t page_bytes);

  size_t bytes() const { return bytes_; }
  const Segment& segment(Kind kind) const { return segments_[kind]; }
  // Fills `memory`, bytes() zeros, with code for `address`, a multiple of page_bytes. Throws
  // kInvalidArgument if an address does not fit into an instruction.
  void write(char* memory, uint64_t address) const;
  // True if the object defines this name for other objects.
  bool defines(std::string_view name) const { return find(name) != nullptr; }
  // Returns the function's offset in the memory. Throws kInvalidArgument if there is none.
  size_t function(std::string_view name) const;

 private:
  struct Placed {
    const Elf64_Shdr* section;
    Kind kind;
    size_t at;  // in its segment
  };
  struct Use {  // a relocation, resolved by write()
    Placed in;
    size_t offset;  // in that section
    uint32_t type, symbol;
    int64_t addend;
  };

  const Elf64_Sym* find(std::string_view name) const;
  void place_section(size_t index);
  void read_symbols();
  void read_relocations(const Elf64_Shdr& table);
  void check_symbol(uint32_t symbol) const;
  void add_stubs_and_slots();
  void lay_out(size_t page_bytes);
  size_t offset_of(const Placed& placed) const { return segments_[placed.kind].begin + placed.at; }
  const LibraryFunction* library_function(uint32_t symbol) const;
  uint64_t address_of(uint32_t symbol, uint64_t base) const;

  const ElfFile elf_;
  const uint16_t machine_;
  const std::span<const LibraryFunction> functions_;
  const Elf64_Shdr* symbol_table_ = nullptr;
  std::vector<Elf64_Sym> symbols_;
  std::map<size_t, Placed> placed_;  // by number of section
  std::vector<Use> uses_;
  std::map<uint32_t, size_t> stubs_, slots_;  // by symbol: offsets in their segments
  Segment segments_[kKinds];
  size_t bytes_ = 0;
};

}  // namespace attune
