// SPDX-License-Identifier: Apache-2.0
// Shared memory for the rows of a captured tensor that a step of an sm_90 kernel with a score stage
// reads (cuda/sm90/score_tile.cuh). The kernel and its launch both compute its size here. Rows
// are 16 bytes longer than their block_n elements of 16 bits, so that eight rows fall into eight
// different groups of banks.
#pragma once

namespace attune {

constexpr int score_tile_pitch(int block_n) { return 2 * block_n + 16; }
constexpr int score_tile_bytes(int block_m, int block_n) {
  return block_m * score_tile_pitch(block_n);
}
// Returns the tile's offset after `bytes` of other data.
constexpr int score_tile_offset(int bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace attune
