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

struct DropoutWords {
  HalfLanes word[4];
};

inline DropoutWords dropout_words(unsigned long long seed, DropoutWords x) {
  unsigned key0 = static_cast<unsigned>(seed), key1 = static_cast<unsigned>(seed >> 32);
#pragma clang loop unroll(full)
  for (int round = 0; round < 7; ++round) {
    const HalfLanes a = (x.word[0] & 0xFFFFFFFFull) * 0xD2511F53ull;
    const HalfLanes b = (x.word[2] & 0xFFFFFFFFull) * 0xCD9E8D57ull;
    x = {{(b >> 32) ^ x.word[1] ^ key0, b, (a >> 32) ^ x.word[3] ^ key1, a}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

// The rows of one register of a panel.
class DropoutRows {
 public:
  // From row `first` of the list of one K/V head on.
  DropoutRows(const KernelArguments& args, int batch, int head_kv, long long first)
      : state_(dropout_state(args.dropout)), last_kept_((args.dropout.threshold << 24) - 1) {
    alignas(kVectorBytes) unsigned rows[kLanes], heads[kLanes];
    const unsigned head = batch * args.num_heads_q + head_kv * kGqaRatio;
    const unsigned row = static_cast<unsigned>(first / kGqaRatio);
    const unsigned before = static_cast<unsigned>(first % kGqaRatio);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      rows[lane] = row + (before + lane) / kGqaRatio;
      heads[lane] = head + (before + lane) % kGqaRatio;
    }
    __builtin_memcpy(&rows_, rows, sizeof(rows_));
    __builtin_memcpy(&heads_, heads, sizeof(heads_));
  }

  // Calls take(key, -1 for each lane that keeps its weight of it).
  template <class Take>
  void for_keys(KeyRange keys, const Take& take) const {
    int n = keys.begin;
    while (n < keys.end) {
      const int stop = n / 16 * 16 + 16;
      Words cell[4];
      find_cell(n / 16, cell);
      if (stop - n == 16 && stop <= keys.end) {
#pragma clang loop unroll(full)
        for (int place = 0; place < 16; ++place) take(n + place, kept(cell, place));
        n = stop;
      } else {
        for (; n < stop && n < keys.end; ++n) take(n, kept(cell, n % 16));
      }
    }
  }

 private:
  // The bytes of 16 keys, as in DropoutCell.
  __attribute__((always_inline)) void find_cell(int cell, Words (&words)[4]) const {
    const unsigned long long number = state_.offset + static_cast<unsigned>(cell);
    const auto lanes = [&](int odd) {
      return dropout_words(state_.seed, {{HalfLanes(number), HalfLanes(number >> 32),
                                          rows_ >> 32 * odd, heads_ >> 32 * odd}});
    };
    const DropoutWords even = lanes(0), odd = lanes(1);
    for (int i = 0; i < 4; ++i)
      words[i] = bits_as<Words>((even.word[i] & 0xFFFFFFFFull) | odd.word[i] << 32);
  }

  // Compares a byte moved to the top of its word: those behind it change nothing.
  Ints kept(const Words (&cell)[4], int place) const {
    return bits_as<Ints>(cell[place / 4] << static_cast<unsigned>(24 - place % 4 * 8) <=
                         Words(last_kept_));
  }

  DropoutState state_;
  unsigned last_kept_;  // of words whose top byte decides
  HalfLanes rows_, heads_;
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
