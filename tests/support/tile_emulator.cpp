// SPDX-License-Identifier: Apache-2.0
// The instructions and their operations are those of the Intel 64 and IA-32 Architectures Software
// Developer's Manual, volume 2; see tile_emulator.hpp.
#include "tests/support/tile_emulator.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <signal.h>
#include <ucontext.h>

#include "generator/core/problem/arch.hpp"

namespace attune::testing {

Arch with_tiles(Arch arch) {
  for (const char* feature : {"+amx-bf16", "+amx-tile"})
    if (!arch.has_feature(feature)) arch.features.push_back(feature);
  std::sort(arch.features.begin(), arch.features.end());
  return arch;
}

#if defined(__x86_64__)
namespace {

constexpr int kTiles = 8, kMostRows = 16, kMostBytes = 64;

struct Tile {
  int rows = 0, bytes = 0;  // 0: not configured
  alignas(64) unsigned char data[kMostRows][kMostBytes];
};
thread_local Tile tiles[kTiles];
thread_local bool configured = false;
std::atomic<long long> products_done = 0;
std::atomic<bool> on = false;

// A VEX instruction of the map 0F38 with a 128-bit length and W 0: all of AMX are.
struct Instruction {
  int prefix;  // 0: none, 1: 66, 2: F3, 3: F2
  int opcode, mod, reg, rm, third;
  uint64_t address = 0;  // of a memory operand
  int64_t stride = 0;    // the index register of a tile in memory
  int length = 0;
};

uint64_t register_of(const ucontext_t& context, int number) {
  constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

template <class T>
T read(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// Returns false for other instructions.
bool decode(const ucontext_t& context, const unsigned char* code, Instruction& found) {
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return false;
  const int reg_high = (code[1] & 0x80) != 0 ? 0 : 8, index_high = (code[1] & 0x40) != 0 ? 0 : 8,
            base_high = (code[1] & 0x20) != 0 ? 0 : 8;
  found.prefix = code[2] & 3;
  found.third = ~(code[2] >> 3) & 0xf;
  found.opcode = code[3];
  found.mod = code[4] >> 6;
  found.reg = (code[4] >> 3 & 7) + reg_high;
  found.rm = (code[4] & 7) + base_high;
  found.length = 5;
  if (found.mod == 3) return true;
  const unsigned char* at = code + 5;
  if ((code[4] & 7) == 4) {
    const int scale = *at >> 6, index = (*at >> 3 & 7) + index_high, base = *at & 7;
    ++at;
    if (index != 4) found.stride = static_cast<int64_t>(register_of(context, index) << scale);
    if (base == 5 && found.mod == 0) {
      found.address = static_cast<uint64_t>(int64_t{read<int32_t>(at)});
      at += 4;
    } else {
      found.address = register_of(context, base + base_high);
    }
  } else if ((code[4] & 7) == 5 && found.mod == 0) {  // relative to the next instruction
    found.address =
        reinterpret_cast<uint64_t>(at + 4) + static_cast<uint64_t>(int64_t{read<int32_t>(at)});
    at += 4;
  } else {
    found.address = register_of(context, found.rm);
  }
  if (found.mod == 1) found.address += static_cast<uint64_t>(int64_t{read<int8_t>(at++)});
  if (found.mod == 2) {
    found.address += static_cast<uint64_t>(int64_t{read<int32_t>(at)});
    at += 4;
  }
  found.length = static_cast<int>(at - code);
  return true;
}

bool configure(const unsigned char* from) {
  if (from[0] != 1 || from[1] != 0) return false;  // palette, first row
  for (int i = 0; i < kTiles; ++i) {
    tiles[i].bytes = read<uint16_t>(from + 16 + 2 * i);
    tiles[i].rows = from[48 + i];
    if (tiles[i].bytes > kMostBytes || tiles[i].rows > kMostRows) return false;
    std::memset(tiles[i].data, 0, sizeof(tiles[i].data));
  }
  return configured = true;
}

float without_denormal(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}
float element(const Tile& tile, int row, int column) {
  const auto bits = static_cast<uint32_t>(read<uint16_t>(&tile.data[row][2 * column])) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return without_denormal(value);
}

// sums += a * b, as TDPBF16PS does it: the two places of pairs are summed separately over k.
bool multiply(Tile& sums, const Tile& a, const Tile& b) {
  if (a.bytes % 4 != 0 || a.bytes / 4 != b.rows || sums.rows != a.rows || sums.bytes != b.bytes ||
      sums.rows == 0 || sums.bytes == 0 || b.rows == 0)
    return false;
  for (int m = 0; m < sums.rows; ++m) {
    for (int n = 0; n < sums.bytes / 4; ++n) {
      float even = 0, odd = 0;
      for (int k = 0; k < b.rows; ++k) {
        even = without_denormal(std::fma(element(a, m, 2 * k), element(b, k, 2 * n), even));
        odd = without_denormal(std::fma(element(a, m, 2 * k + 1), element(b, k, 2 * n + 1), odd));
      }
      unsigned char* const at = &sums.data[m][4 * n];
      const float sum =
          without_denormal(without_denormal(read<float>(at)) + without_denormal(even + odd));
      std::memcpy(at, &sum, sizeof(sum));
    }
  }
  ++products_done;
  return true;
}

bool carry_out(const Instruction& of) {
  const bool in_memory = of.mod != 3;
  auto* const memory = reinterpret_cast<unsigned char*>(of.address);
  if (of.opcode == 0x49 && of.prefix == 0 && of.reg == 0) {
    if (in_memory) return configure(memory);              // LDTILECFG
    for (Tile& tile : tiles) tile.rows = tile.bytes = 0;  // TILERELEASE
    configured = false;
    return true;
  }
  if (!configured || of.reg >= kTiles) return false;
  Tile& tile = tiles[of.reg];
  if (of.opcode == 0x49 && of.prefix == 3 && !in_memory) {  // TILEZERO
    std::memset(tile.data, 0, sizeof(tile.data));
    return true;
  }
  if (of.opcode == 0x4b && in_memory && (of.prefix == 3 || of.prefix == 2)) {
    if (tile.rows == 0) return false;
    for (int row = 0; row < tile.rows; ++row) {
      unsigned char* const at = memory + row * of.stride;
      if (of.prefix == 3)
        std::memcpy(tile.data[row], at, static_cast<size_t>(tile.bytes));  // TILELOADD
      else
        std::memcpy(at, tile.data[row], static_cast<size_t>(tile.bytes));  // TILESTORED
    }
    return true;
  }
  if (of.opcode == 0x5c && of.prefix == 2 && !in_memory && of.rm < kTiles && of.third < kTiles)
    return multiply(tile, tiles[of.rm], tiles[of.third]);
  return false;
}

void on_illegal_instruction(int, siginfo_t*, void* given) {
  ucontext_t& context = *static_cast<ucontext_t*>(given);
  greg_t& next = context.uc_mcontext.gregs[REG_RIP];
  Instruction found{};
  if (decode(context, reinterpret_cast<const unsigned char*>(next), found) && carry_out(found))
    next += found.length;
  else
    ::signal(SIGILL, SIG_DFL);  // the instruction is tried again, and ends the process
}

}  // namespace

TileEmulator::TileEmulator(const Arch& arch) : installed_(!has_bf16_tiles(arch)) {
  if (!installed_) return;
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGILL, &action, nullptr);
  on = true;
}
TileEmulator::~TileEmulator() {
  if (!installed_) return;
  ::signal(SIGILL, SIG_DFL);
  on = false;
}
bool TileEmulator::is_on() { return on; }
long long TileEmulator::products() { return products_done; }

#else

TileEmulator::TileEmulator(const Arch&) : installed_(false) {}
TileEmulator::~TileEmulator() = default;
bool TileEmulator::is_on() { return false; }
long long TileEmulator::products() { return 0; }

#endif

}  // namespace attune::testing
