// SPDX-License-Identifier: Apache-2.0
// Shared memory for addends of scores that depend only on the head and on the distance of key and
// row (cuda/sm90/score_diagonals.cuh). The kernel and its launch both compute its size here.
// It lies after all other shared memory, from diagonals_offset on:
//
// | region   | bytes                  | what                                                      |
// |----------|------------------------|-----------------------------------------------------------|
// | pairs    | slots * diagonal_bytes | for each slot of K: entry i has the addends of diagonals  |
// |          |                        | i and i + 1 of tile and step; diagonal 0 is that of the   |
// |          |                        | tile's last row and the step's first key                  |
// | places   | slots * 16             | the step's first key, the tile's first row, its head (-1: |
// |          |                        | no more steps), its batch                                 |
// | barriers | slots * 8              | a slot's place is written                                 |
#pragma once

namespace attune {

constexpr int kDiagonalPlaceBytes = 16;

constexpr int diagonals_offset(int bytes) { return (bytes + 15) / 16 * 16; }
// Returns the bytes of one slot.
constexpr int diagonal_bytes(int block_m, int block_n) { return 8 * (block_m + block_n); }
constexpr int diagonals_bytes(int block_m, int block_n, int slots) {
  return slots * (diagonal_bytes(block_m, block_n) + kDiagonalPlaceBytes + 8);
}

// Shared memory for the rows of a captured tensor that a step of an sm_90 kernel with a score stage
// reads (cuda/sm90/score_tile.cuh). The kernel and its launch both compute its size here. Rows
// are 16 bytes longer than their block_n elements of 16 bits, so that eight rows fall into eight
// different groups of banks.

constexpr int score_tile_pitch(int block_n) { return 2 * block_n + 16; }
constexpr int score_tile_bytes(int block_m, int block_n) {
  return block_m * score_tile_pitch(block_n);
}
// Returns the tile's offset after `bytes` of other data.
constexpr int score_tile_offset(int bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace attune
