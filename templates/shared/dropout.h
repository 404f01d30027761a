// SPDX-License-Identifier: Apache-2.0
// Which places of P dropout keeps: a function of seed, offset, head (of all batch entries), row and key alone, the same in every kernel,
// tile, split and direction, on every target. Sixteen keys that follow each other share one call of Philox4x32-7, a byte each:
//
//   keep(row, key) = byte key % 16 of Philox(key = seed, counter = {offset + key / 16 (64 bits), row, head}) < threshold
//
// A call of attention uses ceil(seqlen_kv / 16) offsets.
#pragma once

#include "shared/dropout_args.h"
#include "shared/host_device.h"

namespace attune {

struct DropoutCell {
  unsigned word[4];  // byte k of 16 is byte k % 4 of word k / 4
};

struct DropoutState {
  unsigned long long seed, offset;
};

ATTUNE_HOST_DEVICE inline DropoutState dropout_state(const DropoutArgs& args) {
  return {args.seed + (args.seed_address ? *args.seed_address : 0),
          args.offset + (args.offset_address ? *args.offset_address : 0)};
}

// For the backward pass; by the first of the threads that count `thread`.
ATTUNE_HOST_DEVICE inline void write_dropout_state(const DropoutArgs& args, long long thread) {
  if (args.state == nullptr || thread != 0) return;
  const DropoutState state = dropout_state(args);
  args.state[0] = state.seed;
  args.state[1] = state.offset;
}

// a * b. NVRTC multiplies what it was told to be 64 bits wide in more than one instruction.
ATTUNE_HOST_DEVICE inline unsigned long long wide_product(unsigned a, unsigned b) {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned long long>(__umulhi(a, b)) << 32 | a * b;
#else
  return static_cast<unsigned long long>(a) * b;
#endif
}

ATTUNE_HOST_DEVICE inline DropoutCell dropout_cell(DropoutState state, unsigned head, unsigned row,
                                                   unsigned cell) {
  const unsigned long long number = state.offset + cell;
  unsigned key0 = static_cast<unsigned>(state.seed), key1 = static_cast<unsigned>(state.seed >> 32);
  DropoutCell x{{static_cast<unsigned>(number), static_cast<unsigned>(number >> 32), row, head}};
  for (int round = 0; round < 7; ++round) {
    const unsigned long long a = wide_product(x.word[0], 0xD2511F53u),
                             b = wide_product(x.word[2], 0xCD9E8D57u);
    x = {{static_cast<unsigned>(b >> 32) ^ x.word[1] ^ key0, static_cast<unsigned>(b),
          static_cast<unsigned>(a >> 32) ^ x.word[3] ^ key1, static_cast<unsigned>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

// Of key `place` of the 16 of a cell.
ATTUNE_HOST_DEVICE inline bool is_kept(const DropoutCell& cell, unsigned place,
                                       unsigned threshold) {
  return (cell.word[place / 4] >> place % 4 * 8 & 0xFFu) < threshold;
}

// What P of a row and a key is multiplied by; `head` counts those of all batch entries.
ATTUNE_HOST_DEVICE inline float dropout_factor(const DropoutArgs& args, unsigned head, int row,
                                               int key) {
  const unsigned at = static_cast<unsigned>(key);
  const DropoutCell cell = dropout_cell(dropout_state(args), args.head0 + head,
                                        args.row0 + static_cast<unsigned>(row), at / 16);
  return is_kept(cell, at % 16, args.threshold) ? args.scale : 0.0f;
}

}  // namespace attune
