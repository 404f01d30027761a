// SPDX-License-Identifier: Apache-2.0
// Shared memory of the ring through which what dropout keeps of a step comes to the consumers of the sm_90 kernels
// (cuda/attention/dropout_ring.cuh): kernels and launches count it alike. Offsets from a multiple of 16 on:
//
// | region   | bytes                   | what                                                                             |
// |----------|-------------------------|----------------------------------------------------------------------------------|
// | words    | slots * slot bytes      | for each four squares of a step, which has 16 columns in each, and each thread a |
// |          |                         | word: a byte of a square                                                         |
// | places   | slots * 16              | of a step: first row, first key, head of all batch entries, 1: there is none     |
// | barriers | slots * 8, three times  | a slot's place is there, its words are there, they are read                      |
#pragma once

namespace attune {

constexpr int kDropoutSlots = 3;
constexpr int kDropoutPlaceBytes = 16;

constexpr int dropout_ring_offset(int bytes) { return (bytes + 15) / 16 * 16; }
// Of one slot: rows that stay, a thread for each two of them by 4, and columns of a step.
constexpr int dropout_slot_bytes(int stay_rows, int step_columns) {
  return stay_rows * 2 * ((step_columns + 63) / 64) * 4;
}
constexpr int dropout_ring_bytes(int stay_rows, int step_columns) {
  return kDropoutSlots *
         (dropout_slot_bytes(stay_rows, step_columns) + kDropoutPlaceBytes + 3 * 8);
}

}  // namespace attune
