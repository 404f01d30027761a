// SPDX-License-Identifier: Apache-2.0
// The order in which blocks of keys add to a block of rows of dQ (ordered_dq.cuh). It is the order
// of keys, from the first block that any of the rows sees. No block of keys is left out: the limits
// of the visible keys move by one key per row, so the keys that the rows of a block see have no
// gap.
#pragma once

#include "cuda/parts/mask.cuh"

namespace attune {

// Returns the turn of a block of kKeys keys at a block of kRows rows that sees some of them.
template <int kRows, int kKeys>
__device__ __forceinline__ int dq_turn(const AttentionArgs& args, int key_block, int row_block) {
  return key_block - visible_keys(args, row_block * kRows).first / kKeys;
}

}  // namespace attune
