// SPDX-License-Identifier: Apache-2.0
// Layout of prefill_sm90_fp8 in addition to prefill_sm90_layout.h: the registers of a consumer, and
// the kernel that runs before it and writes V^T with keys in the order that P has them.
//
// V^T in the workspace, [batch, num_heads_kv, head_dim_v, keys]: byte 4 q + r of each 16 bytes
// holds key 2 q + r % 2 + 8 (r / 2) of the 16 keys, because lane q of a quad owns columns 2 q, 2 q
// + 1 of every 8 scores, and an 8-bit A operand wants 4 neighbours. Keys past seqlen_kv are zero.
//
// Shared memory of the transposing kernel, one block of kTransposeKeys keys of one head:
// | region  | bytes                                 | written by       | read by   |
// |---------|---------------------------------------|------------------|-----------|
// | in      | panels * 128 keys * row, swizzled     | TMA              | threads   |
// | out     | head_dim_v, padded to 16, rows of 128 | threads          | TMA store |
// | barrier | 8                                     | TMA              | threads   |
// With V given transposed, `in` is left out: TMA fills `out`, and threads reorder it in place.
#pragma once

#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

constexpr int kTransposeKeys = 128;
constexpr int kTransposeThreads = 256;

struct TransposeLayout {
  int row;  // bytes of a panel's row in `in`
  int panels;
  int out;  // offsets
  int barrier;
  int bytes;
};

constexpr TransposeLayout transpose_layout(int head_dim_v, bool given_transposed) {
  TransposeLayout l{};
  l.row = swizzle_span(head_dim_v);
  l.panels = (head_dim_v + l.row - 1) / l.row;
  l.out = given_transposed ? 0 : l.panels * kTransposeKeys * l.row;
  l.barrier = l.out + aligned_slot((head_dim_v + 15) / 16 * 16 * kTransposeKeys);
  l.bytes = l.barrier + 8;
  return l;
}

// Returns the bytes of one warpgroup's flushed sums, as many as its staging of O. They lie in
// shared memory, or block by block after the tile counter of the workspace.
constexpr int prefill_sm90_flushed_bytes(int head_dim_v) {
  return (head_dim_v + kPanelColumns - 1) / kPanelColumns * kWarpgroupRows * kPanelRowBytes;
}

// Returns the columns of a step that share one factor of K and V. A factor covers scale_block_kv
// keys (0: all).
constexpr int columns_of_factor(int block_n, int scale_block_kv) {
  int a = scale_block_kv, b = block_n;  // their greatest common divisor
  while (a > 0) {
    const int rest = b % a;
    b = a;
    a = rest;
  }
  return b;
}

// Returns the registers of one consumer thread's accumulators: S and O in fp32 and P in 8 bits. The
// factors of a step beyond three count too.
constexpr int prefill_sm90_fp8_accumulators(int block_n, int head_dim_v, bool overlap,
                                            int scale_block_kv) {
  const int factors = block_n / columns_of_factor(block_n, scale_block_kv);
  return block_n / 2 + (overlap ? block_n / 8 : 0) + head_dim_v / 2 +
         (factors > 3 ? factors - 3 : 0);
}

}  // namespace attune
