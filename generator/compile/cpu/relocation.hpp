// SPDX-License-Identifier: Apache-2.0
// The relocations that clang writes for position-independent kernels of the small code model, on
// x86-64 and AArch64. Used by elf_link.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attune {

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

}  // namespace attune
