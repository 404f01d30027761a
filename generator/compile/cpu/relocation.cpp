// SPDX-License-Identifier: Apache-2.0
// Formulas: System V ABI, AMD64 Architecture Processor Supplement, section 4.4; ELF for the Arm
// 64-bit Architecture (AAELF64), section 5.7. See elf_link.hpp.
#include "generator/compile/cpu/elf_link.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

// The formula of a relocation's value, then the field that stores it.
enum class Value { kAbsolute, kRelative, kPage, kSlotRelative, kSlotPage, kSlotAbsolute };
enum class Field { k64, kSigned32, kUnsigned32, kAdr21, kImm12, kImm14, kImm19, kImm26 };

struct Rule {
  uint32_t type;
  Value value;
  Field field;
  unsigned shift = 0;   // of the value, in an instruction's field; lower bits must be zero
  bool checked = true;  // the value must fit
};

constexpr Rule kX86Rules[] = {
    {R_X86_64_64, Value::kAbsolute, Field::k64},
    {R_X86_64_PC64, Value::kRelative, Field::k64},
    {R_X86_64_32, Value::kAbsolute, Field::kUnsigned32},
    {R_X86_64_32S, Value::kAbsolute, Field::kSigned32},
    {R_X86_64_PC32, Value::kRelative, Field::kSigned32},
    {R_X86_64_PLT32, Value::kRelative, Field::kSigned32},
    {R_X86_64_GOTPCREL, Value::kSlotRelative, Field::kSigned32},
    {R_X86_64_GOTPCRELX, Value::kSlotRelative, Field::kSigned32},
    {R_X86_64_REX_GOTPCRELX, Value::kSlotRelative, Field::kSigned32},
};

constexpr Rule kAarch64Rules[] = {
    {R_AARCH64_ABS64, Value::kAbsolute, Field::k64},
    {R_AARCH64_ABS32, Value::kAbsolute, Field::kUnsigned32},
    {R_AARCH64_PREL64, Value::kRelative, Field::k64},
    {R_AARCH64_PREL32, Value::kRelative, Field::kSigned32},
    {R_AARCH64_CALL26, Value::kRelative, Field::kImm26, 2},
    {R_AARCH64_JUMP26, Value::kRelative, Field::kImm26, 2},
    {R_AARCH64_CONDBR19, Value::kRelative, Field::kImm19, 2},
    {R_AARCH64_LD_PREL_LO19, Value::kRelative, Field::kImm19, 2},
    {R_AARCH64_TSTBR14, Value::kRelative, Field::kImm14, 2},
    {R_AARCH64_ADR_PREL_LO21, Value::kRelative, Field::kAdr21},
    {R_AARCH64_ADR_PREL_PG_HI21, Value::kPage, Field::kAdr21, 12},
    {R_AARCH64_ADR_PREL_PG_HI21_NC, Value::kPage, Field::kAdr21, 12, false},
    {R_AARCH64_ADD_ABS_LO12_NC, Value::kAbsolute, Field::kImm12},
    {R_AARCH64_LDST8_ABS_LO12_NC, Value::kAbsolute, Field::kImm12},
    {R_AARCH64_LDST16_ABS_LO12_NC, Value::kAbsolute, Field::kImm12, 1},
    {R_AARCH64_LDST32_ABS_LO12_NC, Value::kAbsolute, Field::kImm12, 2},
    {R_AARCH64_LDST64_ABS_LO12_NC, Value::kAbsolute, Field::kImm12, 3},
    {R_AARCH64_LDST128_ABS_LO12_NC, Value::kAbsolute, Field::kImm12, 4},
    {R_AARCH64_ADR_GOT_PAGE, Value::kSlotPage, Field::kAdr21, 12},
    {R_AARCH64_LD64_GOT_LO12_NC, Value::kSlotAbsolute, Field::kImm12, 3},
};

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, why); }

template <size_t kCount>
const Rule* find(const Rule (&rules)[kCount], uint32_t type) {
  for (const Rule& rule : rules)
    if (rule.type == type) return &rule;
  return nullptr;
}

const Rule& rule_of(uint16_t machine, uint32_t type) {
  const Rule* rule = machine == EM_X86_64    ? find(kX86Rules, type)
                     : machine == EM_AARCH64 ? find(kAarch64Rules, type)
                                             : nullptr;
  if (rule == nullptr) refuse(fmt::format("it has a relocation of type {}", type));
  return *rule;
}

uint64_t page(uint64_t address) { return address & ~uint64_t{0xfff}; }

uint64_t value_of(const Rule& rule, const Relocation& r) {
  const uint64_t symbol = r.symbol + static_cast<uint64_t>(r.addend);
  const uint64_t slot = r.slot + static_cast<uint64_t>(r.addend);
  switch (rule.value) {
    case Value::kAbsolute:
      return symbol;
    case Value::kRelative:
      return symbol - r.place;
    case Value::kPage:
      return page(symbol) - page(r.place);
    case Value::kSlotRelative:
      return slot - r.place;
    case Value::kSlotPage:
      return page(slot) - page(r.place);
    case Value::kSlotAbsolute:
      return slot;
  }
  return 0;
}

bool fits_signed(uint64_t value, unsigned bits) {
  const auto number = static_cast<int64_t>(value);
  return number >= -(int64_t{1} << (bits - 1)) && number < int64_t{1} << (bits - 1);
}

bool fits(Field field, uint64_t value) {
  switch (field) {
    case Field::kSigned32:
      return fits_signed(value, 32);
    case Field::kUnsigned32:
      return value <= UINT32_MAX;
    case Field::kAdr21:
      return fits_signed(value, 21);
    case Field::kImm14:
      return fits_signed(value, 14);
    case Field::kImm19:
      return fits_signed(value, 19);
    case Field::kImm26:
      return fits_signed(value, 26);
    default:
      return true;
  }
}

// Returns the instruction with the value in its immediate field.
uint32_t with_immediate(Field field, uint32_t instruction, uint32_t value) {
  const auto put = [&](unsigned width, unsigned at) {
    const uint32_t mask = (uint32_t{1} << width) - 1;
    instruction = (instruction & ~(mask << at)) | (value & mask) << at;
  };
  switch (field) {
    case Field::kImm12:
      put(12, 10);
      break;
    case Field::kImm14:
      put(14, 5);
      break;
    case Field::kImm19:
      put(19, 5);
      break;
    case Field::kImm26:
      put(26, 0);
      break;
    case Field::kAdr21:  // the two lowest bits are in a separate field
      put(2, 29);
      value >>= 2;
      put(19, 5);
      break;
    default:
      break;
  }
  return instruction;
}

}  // namespace

size_t relocated_bytes(uint16_t machine, uint32_t type) {
  return rule_of(machine, type).field == Field::k64 ? 8 : 4;
}

bool needs_slot(uint16_t machine, uint32_t type) {
  const Value value = rule_of(machine, type).value;
  return value == Value::kSlotRelative || value == Value::kSlotPage ||
         value == Value::kSlotAbsolute;
}

void relocate(uint16_t machine, const Relocation& relocation, char* field) {
  const Rule& rule = rule_of(machine, relocation.type);
  uint64_t value = value_of(rule, relocation);
  if (rule.field == Field::k64) {
    std::memcpy(field, &value, sizeof value);
    return;
  }
  if (rule.field == Field::kImm12) value &= 0xfff;
  const auto no_room = [&] {
    refuse(fmt::format("a relocation of type {} has no room for {:#x}", rule.type, value));
  };
  if ((value & ((uint64_t{1} << rule.shift) - 1)) != 0) no_room();
  const auto shifted = static_cast<uint64_t>(static_cast<int64_t>(value) >> rule.shift);
  if (rule.checked && !fits(rule.field, shifted)) no_room();
  auto written = static_cast<uint32_t>(shifted);
  if (rule.field != Field::kSigned32 && rule.field != Field::kUnsigned32) {
    uint32_t instruction = 0;
    std::memcpy(&instruction, field, sizeof instruction);
    written = with_immediate(rule.field, instruction, written);
  }
  std::memcpy(field, &written, sizeof written);
}

}  // namespace attune
