// SPDX-License-Identifier: Apache-2.0
// Links objects for places that are never run. Checks each relocation of x86-64 and AArch64 against
// its formula. An object that is wrong in one field must be refused or do no harm.
#include "generator/compile/cpu/elf_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "generator/core/system/error.hpp"
#include "tests/generator/compile/cpu/tiny_object.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;
using testing::TinyObject;

constexpr uint64_t kBase = 0x7f1234560000, kFar = 0x555500001230;
constexpr LibraryFunction kFunctions[] = {{"memcpy", kFar}, {"expf", kFar + 0x100}};

struct Linked {
  std::string memory;
  size_t code, constants, data, entry;
  template <class Number>
  Number at(size_t place) const {
    Number number;
    std::memcpy(&number, memory.data() + place, sizeof number);
    return number;
  }
};

Linked link(const std::string& object, uint16_t machine, uint64_t base = kBase,
            size_t page = 4096) {
  const LinkedObject linked(object, machine, kFunctions, page);
  Linked made{std::string(linked.bytes(), '\0'), linked.segment(LinkedObject::kCode).begin,
              linked.segment(LinkedObject::kConstants).begin,
              linked.segment(LinkedObject::kData).begin, linked.function("entry")};
  linked.write(made.memory.data(), base);
  return made;
}

std::string refusal(const std::string& object, uint16_t machine = EM_X86_64) {
  return testing::error_text([&] { link(object, machine); }, ErrorCode::kInvalidArgument);
}

// An object with 64 bytes of code, the function entry at 8, and a table at offset 16 of the
// constants.
struct Sample : TinyObject {
  explicit Sample(uint16_t of) {
    machine = of;
    code.assign(64, '\0');
    constants.assign(32, 'c');
    data.assign(16, '\0');
    symbol("entry", kCode, 8);
    table = symbol("table", kConstants, 16, STT_OBJECT);
    memcpy = symbol("memcpy", SHN_UNDEF, 0, STT_NOTYPE);
  }
  uint32_t table, memcpy;
};

TEST(LinkX86, AddressesFollowTheFormulas) {
  Sample o(EM_X86_64);
  o.of_code = {o.use(0, R_X86_64_PC32, o.table, -4),
               o.use(4, R_X86_64_PLT32, o.memcpy, -4),
               o.use(8, R_X86_64_PLT32, 1, -4),
               o.use(12, R_X86_64_REX_GOTPCRELX, o.table, -4),
               o.use(16, R_X86_64_GOTPCREL, o.memcpy, -4),
               o.use(24, R_X86_64_PC64, o.table, 8),
               o.use(32, R_X86_64_64, o.memcpy, 0)};
  o.of_data = {o.use(0, R_X86_64_64, o.table, 3), o.use(8, R_X86_64_64, 1, 0)};
  const Linked m = link(o.bytes(), EM_X86_64);
  EXPECT_EQ(m.entry, 8U);
  const size_t table = m.constants + 16;
  const auto target = [&](size_t place) {
    return place + 4 + static_cast<size_t>(int64_t{m.at<int32_t>(place)});
  };
  EXPECT_EQ(target(0), table);
  EXPECT_EQ(target(8), m.entry);
  const size_t stub = target(4);  // jmp *2(%rip), and the address after it
  EXPECT_EQ(stub % 16, 0U);
  EXPECT_EQ(m.at<uint16_t>(stub), 0x25ff);
  EXPECT_EQ(m.at<uint32_t>(stub + 2), 2U);
  EXPECT_EQ(m.at<uint64_t>(stub + 8), kFar);
  EXPECT_EQ(m.at<uint64_t>(target(12)), kBase + table);
  EXPECT_EQ(m.at<uint64_t>(target(16)), kBase + stub);
  EXPECT_EQ(24 + m.at<uint64_t>(24), table + 8);
  EXPECT_EQ(m.at<uint64_t>(32), kBase + stub);
  EXPECT_EQ(m.at<uint64_t>(m.data), kBase + table + 3);
  EXPECT_EQ(m.at<uint64_t>(m.data + 8), kBase + 8);
  EXPECT_EQ(m.memory.substr(m.constants, 32), o.constants);
}

TEST(LinkX86, AValueWithoutRoomIsRefused) {
  for (const uint32_t type : {R_X86_64_32, R_X86_64_32S}) {
    Sample o(EM_X86_64);
    o.of_code = {o.use(0, type, o.table)};
    EXPECT_THAT(refusal(o.bytes()), HasSubstr("has no room for 0x7f12345"));
  }
  Sample o(EM_X86_64);
  o.of_code = {o.use(0, R_X86_64_PC32, o.table, INT32_MAX)};
  EXPECT_THAT(refusal(o.bytes()), HasSubstr("has no room"));
}

// Returns the operand of an AArch64 instruction, read back from its field.
int64_t field(uint32_t instruction, unsigned width, unsigned at) {
  return static_cast<int64_t>(static_cast<uint64_t>(instruction >> at) << (64 - width)) >>
         (64 - width);
}
uint64_t adr_target(uint32_t instruction, uint64_t place, bool is_page) {
  const int64_t immediate = field(instruction, 19, 5) * 4 + (instruction >> 29 & 3U);
  return is_page ? (place & ~uint64_t{4095}) + static_cast<uint64_t>(immediate * 4096)
                 : place + static_cast<uint64_t>(immediate);
}
uint64_t imm12(uint32_t instruction) { return instruction >> 10 & 0xfffU; }

TEST(LinkAarch64, InstructionsReferToTheirSymbols) {
  Sample o(EM_AARCH64);
  const uint32_t code[] = {0x94000000, 0x14000000, 0x90000000, 0x91000000, 0x3dc00000, 0xf9400000,
                           0xb9400000, 0x79400000, 0x39400000, 0x90000001, 0xf9400021, 0x54000000,
                           0x36000000, 0x10000002, 0x58000003, 0x90000004};
  o.code.assign(reinterpret_cast<const char*>(code), sizeof code);
  const auto use = [&](size_t index, uint32_t type, uint32_t symbol, int64_t addend = 0) {
    o.of_code.push_back(o.use(index * 4, type, symbol, addend));
  };
  use(0, R_AARCH64_CALL26, o.memcpy);
  use(1, R_AARCH64_JUMP26, 1);
  use(2, R_AARCH64_ADR_PREL_PG_HI21, o.table);
  use(3, R_AARCH64_ADD_ABS_LO12_NC, o.table, 3);
  use(4, R_AARCH64_LDST128_ABS_LO12_NC, o.table);
  use(5, R_AARCH64_LDST64_ABS_LO12_NC, o.table, 8);
  use(6, R_AARCH64_LDST32_ABS_LO12_NC, o.table, 4);
  use(7, R_AARCH64_LDST16_ABS_LO12_NC, o.table, 2);
  use(8, R_AARCH64_LDST8_ABS_LO12_NC, o.table, 1);
  use(9, R_AARCH64_ADR_GOT_PAGE, o.table);
  use(10, R_AARCH64_LD64_GOT_LO12_NC, o.table);
  use(11, R_AARCH64_CONDBR19, 1);
  use(12, R_AARCH64_TSTBR14, 1, 4);
  use(13, R_AARCH64_ADR_PREL_LO21, o.table);
  use(14, R_AARCH64_LD_PREL_LO19, o.table, -4);
  use(15, R_AARCH64_ADR_PREL_PG_HI21_NC, o.table, 1 << 20);
  o.of_data = {o.use(0, R_AARCH64_ABS64, o.table, 5), o.use(8, R_AARCH64_PREL32, 1)};
  for (const size_t page : {4096, 65536}) {
    const Linked m = link(o.bytes(), EM_AARCH64, kBase, page);
    const auto at = [&](size_t index) { return m.at<uint32_t>(index * 4); };
    const auto place = [&](size_t index) { return kBase + index * 4; };
    const auto branch = [&](size_t index, unsigned width, unsigned from) {
      return place(index) + static_cast<uint64_t>(field(at(index), width, from) * 4);
    };
    const uint64_t table = kBase + m.constants + 16, low = table & 0xfff;
    const uint64_t stub = branch(0, 26, 0);
    EXPECT_EQ(m.at<uint32_t>(stub - kBase), 0x58000050U) << "ldr x16, .+8";
    EXPECT_EQ(m.at<uint32_t>(stub - kBase + 4), 0xd61f0200U) << "br x16";
    EXPECT_EQ(m.at<uint64_t>(stub - kBase + 8), kFar);
    EXPECT_EQ(branch(1, 26, 0), kBase + m.entry);
    EXPECT_EQ(adr_target(at(2), place(2), true), table & ~uint64_t{4095});
    EXPECT_EQ(imm12(at(3)), low + 3);
    EXPECT_EQ(imm12(at(4)) * 16, low);
    EXPECT_EQ(imm12(at(5)) * 8, low + 8);
    EXPECT_EQ(imm12(at(6)) * 4, low + 4);
    EXPECT_EQ(imm12(at(7)) * 2, low + 2);
    EXPECT_EQ(imm12(at(8)), low + 1);
    const uint64_t slot = adr_target(at(9), place(9), true) + imm12(at(10)) * 8;
    EXPECT_EQ(m.at<uint64_t>(slot - kBase), table);
    EXPECT_EQ(branch(11, 19, 5), kBase + m.entry);
    EXPECT_EQ(branch(12, 14, 5), kBase + m.entry + 4);
    EXPECT_EQ(adr_target(at(13), place(13), false), table);
    EXPECT_EQ(branch(14, 19, 5), table - 4);
    EXPECT_EQ(adr_target(at(15), place(15), true), (table + (1 << 20)) & ~uint64_t{4095});
    EXPECT_EQ(m.at<uint64_t>(m.data), table + 5);
    EXPECT_EQ(m.data + 8 + static_cast<size_t>(int64_t{m.at<int32_t>(m.data + 8)}), m.entry);
    for (size_t i = 0; i < std::size(code); ++i)  // opcode and registers stay
      EXPECT_EQ(at(i) & 0x1000001fU, (code[i] & 0x1000001fU) | (i < 2 ? at(i) & 0x1fU : 0U)) << i;
  }
}

TEST(LinkAarch64, AValueWithoutRoomIsRefused) {
  const auto refused = [](uint32_t type, int64_t addend) {
    Sample o(EM_AARCH64);
    o.of_code = {o.use(0, type, o.table, addend)};
    return refusal(o.bytes(), EM_AARCH64);
  };
  EXPECT_THAT(refused(R_AARCH64_CALL26, 1 << 27), HasSubstr("has no room"));
  EXPECT_THAT(refused(R_AARCH64_CALL26, 2), HasSubstr("has no room")) << "not a multiple of 4";
  EXPECT_EQ(refused(R_AARCH64_CALL26, 1 << 26), "accepted");
  EXPECT_THAT(refused(R_AARCH64_CONDBR19, 1 << 20), HasSubstr("has no room"));
  EXPECT_THAT(refused(R_AARCH64_TSTBR14, 1 << 15), HasSubstr("has no room"));
  EXPECT_THAT(refused(R_AARCH64_ADR_PREL_PG_HI21, int64_t{1} << 32), HasSubstr("has no room"));
  EXPECT_EQ(refused(R_AARCH64_ADR_PREL_PG_HI21_NC, int64_t{1} << 33), "accepted");
  EXPECT_THAT(refused(R_AARCH64_LDST64_ABS_LO12_NC, 4), HasSubstr("has no room"));
  EXPECT_THAT(refused(R_AARCH64_ABS32, 0), HasSubstr("has no room"));
  EXPECT_THAT(refused(R_AARCH64_ADR_GOT_PAGE, 8), HasSubstr("addend"));
}

#ifdef ATTUNE_AARCH64_OBJECT
// Links an object that clang compiled for AArch64. Its addresses must move together with it.
TEST(LinkAarch64, AnObjectOfClangLinks) {
  std::ifstream file(ATTUNE_AARCH64_OBJECT, std::ios::binary);
  const std::string object(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(object.empty());
  const Linked here = link(object, EM_AARCH64), there = link(object, EM_AARCH64, kBase + (1 << 24));
  ASSERT_EQ(here.memory.size(), there.memory.size());
  int moved = 0;
  for (size_t at = 0; at < here.memory.size(); at += 8) {
    const auto difference = there.at<uint64_t>(at) - here.at<uint64_t>(at);
    EXPECT_TRUE(difference == 0 || difference == 1 << 24) << at;
    moved += difference != 0;
  }
  EXPECT_GE(moved, 5) << "a table of four functions, and an address that is loaded";
  EXPECT_THAT(refusal(object, EM_X86_64), HasSubstr("it is AArch64 code"));
}
#endif

TEST(LinkObject, ObjectsWithoutAKernelAreRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("not a 64-bit ELF file"));
  Sample foreign(EM_AARCH64);
  EXPECT_THAT(refusal(foreign.bytes()), HasSubstr("it is AArch64 code"));
  Sample other(EM_X86_64);
  other.of_code = {other.use(0, R_X86_64_PLT32, other.symbol("system", SHN_UNDEF))};
  EXPECT_THAT(refusal(other.bytes()), HasSubstr("refers to system"));
  Sample local(EM_X86_64);
  local.symbols[1].st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
  EXPECT_THAT(refusal(local.bytes()), HasSubstr("no function entry"));
  Sample table(EM_X86_64);
  table.symbols[1].st_shndx = TinyObject::kConstants;
  EXPECT_THAT(refusal(table.bytes()), HasSubstr("names data, not a function"));
  Sample outside(EM_X86_64);
  outside.symbols[1].st_value = 64;
  EXPECT_THAT(refusal(outside.bytes()), HasSubstr("not a function"));
  for (const unsigned char type : {STT_TLS, STT_GNU_IFUNC}) {
    Sample o(EM_X86_64);
    o.of_code = {o.use(0, R_X86_64_PC32, o.symbol("x", TinyObject::kCode, 0, type))};
    EXPECT_THAT(refusal(o.bytes()), HasSubstr("is of type"));
  }
  for (const uint32_t type : {0U, uint32_t{R_X86_64_TPOFF32}, uint32_t{R_X86_64_COPY}, 0xffffU}) {
    Sample o(EM_X86_64);
    o.of_code = {o.use(0, type, o.table)};
    EXPECT_THAT(refusal(o.bytes()), HasSubstr("relocation of type")) << type;
  }
  for (const uint64_t place : {uint64_t{61}, uint64_t{64}, UINT64_MAX, UINT64_MAX - 3}) {
    Sample o(EM_X86_64);
    o.of_code = {o.use(place, R_X86_64_PC32, o.table)};
    EXPECT_THAT(refusal(o.bytes()), HasSubstr("lies outside")) << place;
  }
  for (const uint32_t symbol : {0U, 4U, 0xffffffffU}) {
    Sample o(EM_X86_64);
    o.of_code = {o.use(0, R_X86_64_PC32, symbol)};
    EXPECT_THAT(refusal(o.bytes()), HasSubstr("has no symbol")) << symbol;
  }
}

// Replaces each number of the file by others. The sanitizers watch; an object that links must stay
// within its memory.
TEST(LinkObject, AnyChangedNumberIsRefusedOrDoesNoHarm) {
  Sample o(EM_X86_64);
  o.of_code = {o.use(0, R_X86_64_PC32, o.table, -4), o.use(4, R_X86_64_PLT32, o.memcpy, -4),
               o.use(12, R_X86_64_REX_GOTPCRELX, o.table, -4)};
  o.of_data = {o.use(0, R_X86_64_64, o.table, 3)};
  const std::string sound = o.bytes();
  ASSERT_EQ(refusal(sound), "accepted");
  size_t refused = 0;
  for (size_t at = 0; at + 8 <= sound.size(); at += 2)
    for (const size_t width : {2, 4, 8})
      for (const uint64_t value :
           {uint64_t{0}, uint64_t{1}, uint64_t{0x7fff}, uint64_t{0x7fffffff}, uint64_t{0x8000},
            uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7}) {
        std::string changed = sound;
        std::memcpy(changed.data() + at, &value, width);
        refused += refusal(changed) != "accepted";
      }
  EXPECT_GT(refused, 1000U);
  for (size_t size = 0; size < sound.size(); ++size)
    EXPECT_NE(refusal(sound.substr(0, size)), "accepted");
}

}  // namespace
}  // namespace attune
