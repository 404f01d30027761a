// SPDX-License-Identifier: Apache-2.0
// Which places of P dropout keeps: a function of seed, offset, head (of all batch entries), row and key alone, the same in every kernel,
// tile, split and direction, on every target. A square of 16 rows and 16 keys has eight streams of 32 places each: stream s of rows
// 2 (s / 2), 2 (s / 2) + 1 and 8 further down, and of keys 4 (s % 2) to 4 (s % 2) + 3 and 8 further on. A place is a bit of a word,
//
//   16 (key / 2 % 2) + 8 (row % 2) + 4 (key % 2) + 2 (key / 8 % 2) + row / 8 % 2
//
// so that eight places which tensor cores give one thread are a byte, and of a transposed product two halves of bytes. A stream is
//
//   x = {offset + key / 16 (64 bits), row / 16 * 8 + s, head}
//   rounds of Philox4x32, with the seed as key of even rounds and multiples of Philox's Weyl constants as that of odd ones
//
// Its four words after 7 rounds, and after 9, are eight random bits for each bit of the word, from the lowest on; a place is kept where
// they are below the threshold. A call of attention uses ceil(seqlen_kv / 16) offsets.
#pragma once

#include "shared/dropout_args.h"
#include "shared/host_device.h"

namespace attune {

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

ATTUNE_HOST_DEVICE inline void dropout_round(unsigned (&x)[4], unsigned key0, unsigned key1) {
  const unsigned long long a = wide_product(x[0], 0xD2511F53u), b = wide_product(x[2], 0xCD9E8D57u);
  x[0] = static_cast<unsigned>(b >> 32) ^ x[1] ^ key0;
  x[1] = static_cast<unsigned>(b);
  x[2] = static_cast<unsigned>(a >> 32) ^ x[3] ^ key1;
  x[3] = static_cast<unsigned>(a);
}

ATTUNE_HOST_DEVICE inline void dropout_rounds(unsigned (&x)[4], unsigned long long seed, int begin,
                                              int end) {
  for (int round = begin; round < end; ++round) {
    const unsigned odd = static_cast<unsigned>(round);
    if (round % 2 == 0)
      dropout_round(x, static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
    else
      dropout_round(x, odd * 0x9E3779B9u, odd * 0xBB67AE85u);
  }
}

// For each bit whether the number that stands at it in `words`, lowest bit first, above those that came before is at most the limit:
// `limit` are its four bits, `kept` says whether that holds of what came before.
ATTUNE_HOST_DEVICE inline unsigned at_most(const unsigned (&words)[4], const unsigned* limit,
                                           unsigned kept) {
  for (int i = 0; i < 4; ++i) kept = (~words[i] & (limit[i] | kept)) | (limit[i] & kept);
  return kept;
}

// What a stream, row / 16 * 8 + s, keeps of 16 keys; `limit` is that of DropoutArgs.
ATTUNE_HOST_DEVICE inline unsigned dropout_bits(DropoutState state, const unsigned (&limit)[8],
                                                unsigned head, unsigned stream, unsigned cell) {
  const unsigned long long number = state.offset + cell;
  unsigned x[4] = {static_cast<unsigned>(number), static_cast<unsigned>(number >> 32), stream,
                   head};
  dropout_rounds(x, state.seed, 0, 7);
  const unsigned kept = at_most(x, limit, ~0u);
  dropout_rounds(x, state.seed, 7, 9);
  return at_most(x, limit + 4, kept);
}

ATTUNE_HOST_DEVICE constexpr unsigned dropout_stream(unsigned row, unsigned key) {
  return row / 16 * 8 + row / 2 % 4 * 2 + key / 4 % 2;
}

// Of its stream's word.
ATTUNE_HOST_DEVICE constexpr unsigned dropout_bit(unsigned row, unsigned key) {
  return key / 2 % 2 * 16 + row % 2 * 8 + key % 2 * 4 + key / 8 % 2 * 2 + row / 8 % 2;
}

// What P of a row and a key is multiplied by; `head` counts those of all batch entries.
ATTUNE_HOST_DEVICE inline float dropout_factor(const DropoutArgs& args, unsigned head, int row,
                                               int key) {
  const unsigned at = static_cast<unsigned>(key), in = args.row0 + static_cast<unsigned>(row);
  const unsigned bits = dropout_bits(dropout_state(args), args.limit, args.head0 + head,
                                     dropout_stream(in, at), at / 16);
  return bits >> dropout_bit(in, at) & 1 ? args.scale : 0.0f;
}

}  // namespace attune
