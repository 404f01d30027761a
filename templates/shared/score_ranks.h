// SPDX-License-Identifier: Apache-2.0
// The order of scores for op top_k, on every target: a score's rank is an integer, and the chosen
// keys are those with the largest ranks. Equal scores have equal ranks, also 0 and -0.
//
// | score     | rank                                          |
// |-----------|-----------------------------------------------|
// | -infinity | kHiddenRank: such a key is never chosen       |
// | finite    | between, in the order of the numbers          |
// | +infinity | kNanRank - 1                                  |
// | NaN       | kNanRank, whatever its sign and payload       |
#pragma once

#include "shared/attention_args.h"
#include "shared/host_device.h"
#include "shared/scale_args.h"
#include "shared/visibility.h"

namespace attune {

constexpr unsigned kHiddenRank = 0, kNanRank = 0xff000001u;
constexpr unsigned kLeastScore = 0xff800000u;  // the bits of -infinity

// Returns the rank of an fp32 score, given its bits.
ATTUNE_HOST_DEVICE inline unsigned rank_of(unsigned bits) {
  // Integers in the order of the numbers: -infinity is 0x7fffff, +infinity 0xff800000. NaN is
  // beyond both ends.
  const unsigned ordered = bits ^ ((bits >> 31) != 0 ? ~0u : 0x80000000u);
  // -infinity becomes 0, and NaN of both signs the largest numbers. -0 becomes 0x7f800000, and 0
  // the next number; both get one rank.
  unsigned rank = ordered - 0x7fffffu;
  if (rank > 0x7f800000u) --rank;
  return rank < kNanRank ? rank : kNanRank;
}

// Returns the bits of a score of this rank. It compares with other scores as their ranks do, but
// -0 is equal to 0, and NaN compares with none.
ATTUNE_HOST_DEVICE inline unsigned score_of(unsigned rank) {
  const unsigned ordered = (rank > 0x7f800000u ? rank + 1 : rank) + 0x7fffffu;
  return ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : ~0u);
}

// Returns the number of keys that a row sees. A Rule is as in visibility.h, of any mask and no
// window.
template <class Rule>
ATTUNE_HOST_DEVICE inline int num_keys_of_row(const Rule& rule, const AttentionArgs& args,
                                              const ScaleView& lengths, int batch, int head,
                                              int row) {
  const int last = visible_keys(rule, args, row).last;
  int end = last < -1 ? 0 : last + 1;
  if (lengths.data != nullptr) {
    const int length = reinterpret_cast<const int*>(
        lengths.data)[batch * lengths.batch_stride +
                      head / lengths.heads_per_scale * lengths.head_stride +
                      row * lengths.block_stride];
    end = length < end ? length : end;
  }
  return end < 0 ? 0 : end;
}

}  // namespace attune
