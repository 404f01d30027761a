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

}  // namespace attune
