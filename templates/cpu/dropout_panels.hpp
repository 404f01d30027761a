// SPDX-License-Identifier: Apache-2.0
// Which weights of a panel dropout keeps (shared/dropout.h): Philox with a row a lane.
#pragma once

#include "cpu/simd.hpp"
#include "cpu/visibility.hpp"
#include "shared/dropout.h"
#include "shared/kernel_arguments.h"

namespace attune {

// A word of Philox for the lanes of one register that have an even number, or those with an odd one. The upper halves hold anything:
// so words are multiplied where they lie, without moving lanes.
typedef unsigned long long HalfLanes __attribute__((ext_vector_type(kLanes / 2)));

// What streams keep.
inline HalfLanes dropout_bits(unsigned long long seed, const unsigned (&limit)[8],
                              HalfLanes (&x)[4]) {
  HalfLanes kept = ~0ull;
#pragma clang loop unroll(full)
  for (unsigned round = 0; round < 9; ++round) {
    const unsigned key0 = round % 2 ? round * 0x9E3779B9u : static_cast<unsigned>(seed);
    const unsigned key1 = round % 2 ? round * 0xBB67AE85u : static_cast<unsigned>(seed >> 32);
    const HalfLanes a = (x[0] & 0xFFFFFFFFull) * 0xD2511F53ull;
    const HalfLanes b = (x[2] & 0xFFFFFFFFull) * 0xCD9E8D57ull;
    x[0] = (b >> 32) ^ x[1] ^ key0, x[1] = b;
    x[2] = (a >> 32) ^ x[3] ^ key1, x[3] = a;
    if (round != 6 && round != 8) continue;
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) {
      const HalfLanes bit = static_cast<unsigned long long>(limit[round == 6 ? i : i + 4]);
      kept = (~x[i] & (bit | kept)) | (bit & kept);
    }
  }
  return kept;
}

// The rows of one register of a panel.
class DropoutRows {
 public:
  // From row `first` of the list of one K/V head on.
  DropoutRows(const KernelArguments& args, int batch, int head_kv, long long first)
      : limit_(args.dropout.limit), state_(dropout_state(args.dropout)) {
    alignas(kVectorBytes) unsigned streams[kLanes], heads[kLanes], first_bits[kLanes];
    const unsigned head = batch * args.num_heads_q + head_kv * kGqaRatio;
    const unsigned row = static_cast<unsigned>(first / kGqaRatio);
    const unsigned before = static_cast<unsigned>(first % kGqaRatio);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const unsigned of_lane = row + (before + lane) / kGqaRatio;
      streams[lane] = dropout_stream(of_lane, 0);
      first_bits[lane] = dropout_bit(of_lane, 0);
      heads[lane] = head + (before + lane) % kGqaRatio;
    }
    __builtin_memcpy(&streams_, streams, sizeof(streams_));
    __builtin_memcpy(&first_bits_, first_bits, sizeof(first_bits_));
    __builtin_memcpy(&heads_, heads, sizeof(heads_));
  }

  // Calls take(key, -1 for each lane that keeps its weight of it).
  template <class Take>
  void for_keys(KeyRange keys, const Take& take) const {
    int n = keys.begin;
    while (n < keys.end) {
      const int stop = n / 16 * 16 + 16;
      Words cell[2];
      find_cell(n / 16, cell);
      if (stop - n == 16 && stop <= keys.end) {
#pragma clang loop unroll(full)
        for (int place = 0; place < 16; ++place) take(n + place, kept(cell, static_cast<unsigned>(place)));
        n = stop;
      } else {
        for (; n < stop && n < keys.end; ++n) take(n, kept(cell, static_cast<unsigned>(n) % 16));
      }
    }
  }

 private:
  // What 16 keys keep, with the bits of key 0 of each lane's row moved to bit 0.
  __attribute__((always_inline)) void find_cell(int cell, Words (&words)[2]) const {
    const unsigned long long number = state_.offset + static_cast<unsigned>(cell);
    const auto lanes = [&](int odd, unsigned stream) {
      HalfLanes x[4] = {HalfLanes(number), HalfLanes(number >> 32),
                        (streams_ >> 32 * odd) + stream, heads_ >> 32 * odd};
      return dropout_bits(state_.seed, limit_, x);
    };
    for (unsigned i = 0; i < 2; ++i)
      words[i] =
          bits_as<Words>((lanes(0, i) & 0xFFFFFFFFull) | lanes(1, i) << 32) >> first_bits_;
  }

  // Of key `place` of the 16.
  static Ints kept(const Words (&cell)[2], unsigned place) {
    return bits_as<Ints>(cell[dropout_stream(0, place)] << (31 - dropout_bit(0, place))) >> 31;
  }

  const unsigned (&limit_)[8];
  DropoutState state_;
  HalfLanes streams_, heads_;
  Words first_bits_;
};

// Writes make(element, whether it is kept) over the elements of panels, of rows from `first` of the list of one K/V head on.
template <class Make>
inline void visit_dropout(const KernelArguments& args, int batch, int head_kv, long long first,
                          KeyRange keys, Panel* panels, const Make& make) {
  for (int vector = 0; vector < kVectors; ++vector) {
    const DropoutRows rows(args, batch, head_kv, first + vector * kLanes);
    rows.for_keys(keys, [&](int key, Ints kept) {
      Floats& element = reinterpret_cast<Floats*>(panels + (key - keys.begin))[vector];
      element = make(element, kept);
    });
  }
}

// Sets dropped weights to 0 and scales those that are kept.
inline void drop_weights(const KernelArguments& args, int batch, int head_kv, long long first,
                         KeyRange keys, Panel* weights) {
  const Floats scale = args.dropout.scale;
  visit_dropout(args, batch, head_kv, first, keys, weights,
                [&](Floats weight, Ints kept) { return kept ? weight * scale : Floats(0.0f); });
}

// What weights are multiplied by.
inline void find_dropout_factors(const KernelArguments& args, int batch, int head_kv,
                                 long long first, KeyRange keys, Panel* factors) {
  const Floats scale = args.dropout.scale;
  visit_dropout(args, batch, head_kv, first, keys, factors,
                [&](Floats, Ints kept) { return kept ? scale : Floats(0.0f); });
}

}  // namespace attune
