// SPDX-License-Identifier: Apache-2.0
// How blocks of keys share the heads of Q of a group, in kernels of gradients on Hopper with
// split_heads 1. A group has `ratio` heads of Q for its head of K. They form `parts` parts of
// consecutive heads, whose sizes differ by at most one. A work tile is a block of keys with one
// part. It leaves its sums of dK and dV in the workspace; attune_join adds the sums of all parts.
// Kernels and launch read this one text.
//
// | workspace | fp32                                                                        |
// |-----------|-----------------------------------------------------------------------------|
// | slices    | [batch, num_heads_kv, parts, blocks of 64 keys, columns / 8, 128 threads, 4] |
//
// `columns` are those of dK, then those of dV. A thread of a warpgroup has four values of eight
// columns, in the order of accumulators (PTX ISA 9.7.15.5, wgmma of fp32).
#pragma once

#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

// Returns the number of parts of a launch, from its work tiles. A head of K has `blocks` blocks.
constexpr int backward_head_parts(int num_tiles, int blocks, int num_heads_kv, int batch) {
  return num_tiles / (blocks * num_heads_kv * batch);
}

// Returns the first head of a part, counted from the first of its group.
constexpr int backward_part_begin(int ratio, int parts, int part) { return part * ratio / parts; }

// Returns the blocks of 64 keys of a slice. A slice has whole tiles of key_block_n keys.
constexpr int backward_slice_blocks(int seqlen_kv, int key_block_n) {
  return (seqlen_kv + key_block_n - 1) / key_block_n * (key_block_n / kWarpgroupRows);
}

// Returns the fp32 values of a block of 64 keys.
constexpr int backward_slice_floats(int columns) { return kWarpgroupRows * columns; }

// Returns the first value of block `block` of a slice. Slices are counted over all heads of K of
// all batch entries, the parts of a head one after the other.
constexpr long long backward_slice_place(long long slice, int block, int seqlen_kv, int key_block_n,
                                         int columns) {
  return (slice * backward_slice_blocks(seqlen_kv, key_block_n) + block) *
         backward_slice_floats(columns);
}

constexpr int kJoinGroups = 8;  // groups of eight columns that a block of attune_join adds

// Returns the blocks of attune_join for 64 keys.
constexpr int backward_join_blocks(int columns) {
  return (columns / 8 + kJoinGroups - 1) / kJoinGroups;
}

}  // namespace attune
