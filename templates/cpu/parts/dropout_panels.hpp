// SPDX-License-Identifier: Apache-2.0
// Finds the weights of a panel that dropout keeps (shared/dropout.h), with one row per lane.
#pragma once

#include "cpu/parts/simd.hpp"
#include "cpu/parts/visibility.hpp"
#include "shared/dropout.h"
#include "shared/kernel_arguments.h"

namespace attune {

// The rows of one register of a panel.
class DropoutRows {
 public:
  // The rows begin at row `first` of the list of one K/V head.
  DropoutRows(const KernelArguments& args, int batch, int head_kv, long long first)
      : limit_(args.dropout.limit) {
    alignas(kVectorBytes) unsigned start[2][4][kLanes], first_bits[kLanes];
    const DropoutState state = dropout_state(args.dropout);
    const unsigned head_of_all =
        args.dropout.head0 + batch * args.num_heads_q + head_kv * kGqaRatio;
    const unsigned row0 = args.dropout.row0 + static_cast<unsigned>(first / kGqaRatio);
    const unsigned before = static_cast<unsigned>(first % kGqaRatio);
    DropoutKey of_head{};
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const unsigned row = row0 + (before + lane) / kGqaRatio;
      if (lane == 0 || kGqaRatio > 1)
        of_head = dropout_key(state, head_of_all + (before + lane) % kGqaRatio);
      first_bits[lane] = dropout_bit(row, 0);
      for (unsigned i = 0; i < 2; ++i) {
        const DropoutKey of_row = at_stream(of_head, dropout_stream(row, 4 * i));
        for (int j = 0; j < 4; ++j) start[i][j][lane] = of_row.word[j];
      }
    }
    __builtin_memcpy(&start_, start, sizeof(start_));
    __builtin_memcpy(&first_bits_, first_bits, sizeof(first_bits_));
  }

  // Calls take(key, kept) for each key: `kept` is -1 in lanes that keep their weight of the key.
  template <class Take>
  __attribute__((always_inline)) void for_keys(KeyRange keys, const Take& take) const {
    int n = keys.begin;
    while (n < keys.end) {
      const int stop = n / 16 * 16 + 16;
      Words cell[2];
      find_cell(n / 16, cell);
      if (stop - n == 16 && stop <= keys.end) {
#pragma clang loop unroll(full)
        for (int place = 0; place < 16; ++place)
          take(n + place, kept(cell, static_cast<unsigned>(place)));
        n = stop;
      } else {
        for (; n < stop && n < keys.end; ++n) take(n, kept(cell, static_cast<unsigned>(n) % 16));
      }
    }
  }

 private:
  // Finds the bits of 16 keys, with the bit of key 0 of each lane's row moved to bit 0.
  __attribute__((always_inline)) void find_cell(int cell, Words (&words)[2]) const {
    const DropoutKey moved = at_cell({}, static_cast<unsigned>(cell));
#pragma clang loop unroll(full)  // two long dependency chains run in parallel
    for (int i = 0; i < 2; ++i) {
      Words x[4] = {start_[i][0] ^ moved.word[0], start_[i][1], start_[i][2], start_[i][3]};
      words[i] = dropout_bits(x, limit_) >> first_bits_;
    }
  }

  // Returns -1 in each lane whose row keeps key `place` of the 16.
  static Ints kept(const Words (&cell)[2], unsigned place) {
    return (cell[dropout_stream(0, place)] & 1u << dropout_bit(0, place)) != 0;
  }

  const unsigned (&limit_)[8];
  Words start_[2][4];  // of the two streams of each lane's row
  Words first_bits_;
};

// Replaces each element of the panels by make(element, kept), for rows from `first` on of the list
// of one K/V head.
template <class Make>
inline void visit_dropout(const KernelArguments& args, int batch, int head_kv, long long first,
                          KeyRange keys, Panel* panels, const Make& make) {
  for (int vector = 0; vector < kVectors; ++vector) {
    const DropoutRows rows(args, batch, head_kv, first + vector * kLanes);
    Floats* const first_key = reinterpret_cast<Floats*>(panels) + vector;
    rows.for_keys(keys, [=](int key, Ints kept) {  // by value, so no key reloads the captures
      Floats& element = first_key[(key - keys.begin) * kVectors];
      element = make(element, kept);
    });
  }
}

// Sets dropped weights to 0. The output of the other weights is scaled at the end.
inline void drop_weights(const KernelArguments& args, int batch, int head_kv, long long first,
                         KeyRange keys, Panel* weights) {
  visit_dropout(args, batch, head_kv, first, keys, weights,
                [](Floats weight, Ints kept) { return kept ? weight : Floats(0.0f); });
}

// The factors that the weights of a panel are multiplied by, for up to kKeys keys.
template <int kKeys>
struct DropoutFactors {
  void find(const KernelArguments& args, int batch, int head_kv, long long first, KeyRange keys) {
    const Floats scale = args.dropout.scale;
    visit_dropout(args, batch, head_kv, first, keys, factors,
                  [=](Floats, Ints kept) { return kept ? scale : Floats(0.0f); });
  }
  void scale(int key, Panel& weight) const { weight *= factors[key]; }
  Panel factors[kKeys];
};

}  // namespace attune
