// SPDX-License-Identifier: Apache-2.0
// The relocations that clang writes for position-independent kernels of the small code model, on x86-64
// and AArch64. Used by elf_link.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attune {

// One place of an object that holds an address, in the words of the psABI documents: "S + A - P".
struct Relocation {
  uint32_t type = 0;
  uint64_t place = 0;   // P: where it stands in the memory that runs
  uint64_t symbol = 0;  // S
  int64_t addend = 0;   // A
  uint64_t slot = 0;    // G: where the symbol's address stands; only where needs_slot
};

// Returns how many bytes it writes. Throws kInvalidArgument for a type that is not known.
size_t relocated_bytes(uint16_t machine, uint32_t type);
// True where the code loads the symbol's address from a table.
bool needs_slot(uint16_t machine, uint32_t type);
// Writes to `field`, which is what stands at `place`. Throws kInvalidArgument where the value has no room.
void relocate(uint16_t machine, const Relocation& relocation, char* field);

}  // namespace attune
