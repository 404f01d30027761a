// SPDX-License-Identifier: Apache-2.0
// Decides which places of P dropout keeps. The decision depends only on seed, offset, head (counted
// over all batch entries), row and key. It is the same in every kernel, tile, split and direction,
// on every target. A square of 16 rows and 16 keys has eight streams of 32 places each. Stream s
// covers rows 2 (s / 2) and 2 (s / 2) + 1 and the rows 8 further down, and keys 4 (s % 2) to 4 (s %
// 2) + 3 and the keys 8 further on. Each place is one bit of the stream's word, at bit
//
//   16 (key / 2 % 2) + 8 (row % 2) + 4 (key % 2) + 2 (key / 8 % 2) + row / 8 % 2
//
// so that the eight places that one thread has in a tensor-core product form a byte, and in a
// transposed product two half bytes. Eight random bits form a number for each place: the place is
// kept if this number is below the threshold. One bit comes from each of eight words:
//
//   key     Philox4x32-7 of counter {offset (64 bits), head, 0} under the seed
//   x       key ^ {cell A ^ stream B, 0, 0, stream C}, cell = key / 16, stream = row / 16 * 8 + s
//   words   x after two passes of dropout_pass, and after dropout_last_pass
//
// The key is computed once per head, the passes for each word of decisions. Passes have no 64-bit
// products, for which tensor cores would have to wait. How random the decisions are:
// tests/templates/shared/dropout_quality_test.cpp.
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

// Writes the seed and offset for the backward pass. Only the thread with number 0 writes.
ATTUNE_HOST_DEVICE inline void write_dropout_state(const DropoutArgs& args, long long thread) {
  if (args.state == nullptr || thread != 0) return;
  const DropoutState state = dropout_state(args);
  args.state[0] = state.seed;
  args.state[1] = state.offset;
}

// Returns a * b. NVRTC would take more than one instruction to multiply operands that are cast to
// 64 bits.
ATTUNE_HOST_DEVICE inline unsigned long long wide_product(unsigned a, unsigned b) {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned long long>(__umulhi(a, b)) << 32 | a * b;
#else
  return static_cast<unsigned long long>(a) * b;
#endif
}

// Start values of all streams of a head.
struct DropoutKey {
  unsigned word[4];
};

ATTUNE_HOST_DEVICE inline DropoutKey dropout_key(DropoutState state, unsigned head) {
  unsigned key0 = static_cast<unsigned>(state.seed), key1 = static_cast<unsigned>(state.seed >> 32);
  DropoutKey x{
      {static_cast<unsigned>(state.offset), static_cast<unsigned>(state.offset >> 32), head, 0}};
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

// Rotates left by `left` bits. Here and below, Word is unsigned, or a vector of unsigned
// (cpu/parts/simd.hpp).
template <class Word>
ATTUNE_HOST_DEVICE inline Word rotated(Word x, int left) {
#ifdef __CUDA_ARCH__
  return __funnelshift_l(x, x, left);  // NVRTC compiles some shifts and ors to three instructions
#else
  return x << left | x >> (32 - left);
#endif
}

constexpr unsigned kDropoutFactors[2] = {0xD2511F53u, 0xCD9E8D57u};

// Adds a multiple of the previous word to each word, and rotates. Returns the sum in x[0] before
// its rotation.
template <class Word>
ATTUNE_HOST_DEVICE inline Word dropout_pass(Word (&x)[4]) {
  x[1] = rotated(x[1] + x[0] * kDropoutFactors[0], 17);
  x[2] = rotated(x[2] + x[1] * kDropoutFactors[1], 15);
  x[3] = rotated(x[3] + x[2] * kDropoutFactors[0], 18);
  const Word sum = x[0] + x[3] * kDropoutFactors[1];
  x[0] = rotated(sum, 13);
  return sum;
}

// Adds to each word a multiple of the previous word's sum before that sum's rotation. Its bits are
// then at other places than in the stored word, so no two places of a stream determine the lowest
// bits of a third. `sum` is the result of the previous pass.
template <class Word>
ATTUNE_HOST_DEVICE inline void dropout_last_pass(Word (&x)[4], Word sum) {
  sum = x[1] + sum * kDropoutFactors[0];
  x[1] = rotated(sum, 17);
  sum = x[2] + sum * kDropoutFactors[1];
  x[2] = rotated(sum, 15);
  sum = x[3] + sum * kDropoutFactors[0];
  x[3] = rotated(sum, 18);
  x[0] = rotated(x[0] + rotated(sum, 26) * kDropoutFactors[1], 13);
}

// Compares, at each bit position, the number that this position has in `words` (lowest bit first)
// with a limit. Returns the positions where the number is at most the limit. `limit` holds four
// bits of the limit, each in all bits of a word. `kept` is the result of the lower bits, compared
// before.
template <class Word>
ATTUNE_HOST_DEVICE inline Word at_most(const Word (&words)[4], const unsigned* limit, Word kept) {
  for (int i = 0; i < 4; ++i) kept = (~words[i] & (limit[i] | kept)) | (limit[i] & kept);
  return kept;
}

// Returns the places that dropout keeps of each stream in one cell of 16 keys, one bit per place.
// `x` is the key combined with stream and cell; `limit` is DropoutArgs::limit.
template <class Word>
ATTUNE_HOST_DEVICE inline Word dropout_bits(Word (&x)[4], const unsigned (&limit)[8]) {
  dropout_pass(x);
  const Word sum = dropout_pass(x);
  const Word kept = at_most<Word>(x, limit, ~Word{});
  dropout_last_pass(x, sum);
  return at_most(x, limit + 4, kept);
}

// Return a key combined with a stream, row / 16 * 8 + s, or with a cell, key / 16. The two may be
// applied in either order.
ATTUNE_HOST_DEVICE inline DropoutKey at_stream(const DropoutKey& key, unsigned stream) {
  return {{key.word[0] ^ stream * 0xC2B2AE35u, key.word[1], key.word[2],
           key.word[3] ^ stream * 0x9E3779B9u}};
}
ATTUNE_HOST_DEVICE inline DropoutKey at_cell(const DropoutKey& key, unsigned cell) {
  return {{key.word[0] ^ cell * 0x1B873593u, key.word[1], key.word[2], key.word[3]}};
}

ATTUNE_HOST_DEVICE inline unsigned dropout_bits(const DropoutKey& key_at_both,
                                                const unsigned (&limit)[8]) {
  DropoutKey x = key_at_both;
  return dropout_bits(x.word, limit);
}

ATTUNE_HOST_DEVICE constexpr unsigned dropout_stream(unsigned row, unsigned key) {
  return row / 16 * 8 + row / 2 % 4 * 2 + key / 4 % 2;
}

// Returns the position of a row and key's bit in the word of their stream: 0 to 31.
ATTUNE_HOST_DEVICE constexpr unsigned dropout_bit(unsigned row, unsigned key) {
  return key / 2 % 2 * 16 + row % 2 * 8 + key % 2 * 4 + key / 8 % 2 * 2 + row / 8 % 2;
}

// Returns the dropout factor of P for a row and a key: 0, or the scale of kept weights. `head`
// counts heads of all batch entries.
ATTUNE_HOST_DEVICE inline float dropout_factor(const DropoutArgs& args, unsigned head, int row,
                                               int key) {
  const unsigned at = static_cast<unsigned>(key), in = args.row0 + static_cast<unsigned>(row);
  const DropoutKey of_head = dropout_key(dropout_state(args), args.head0 + head);
  const unsigned bits =
      dropout_bits(at_cell(at_stream(of_head, dropout_stream(in, at)), at / 16), args.limit);
  return bits >> dropout_bit(in, at) & 1 ? args.scale : 0.0f;
}

}  // namespace attune
