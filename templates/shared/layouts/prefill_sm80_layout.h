// SPDX-License-Identifier: Apache-2.0
// Dynamic shared memory of the mma.sync kernels prefill_sm75, prefill_sm80, prefill_sm80_tf32 and
// prefill_sm89. Host and kernel compile the same formulas.
//
// | offset       | bytes                                     | what                               |
// |--------------|-------------------------------------------|------------------------------------|
// | 0            | block_m * row(qk)                         | Q tile; in the ring with q_place 2 |
// | ring_offset  | kv_slots * block_n * (row(qk) + row(v))   | share_kv 0: K, V, K, V, ... slots  |
// |              | kv_slots * block_n * max(row(qk), row(v)) | share_kv 1: K and V by turns       |
// | state_offset | 16 * (1 + warps)                          | cuda/mma/tile_state.cuh            |
//
// row(head_dim) is the bytes of a row, padded with zeros to a multiple of 32 bytes; its 16-byte
// chunks are swizzled (cuda/mma/shared_tile.cuh). A V tile with contiguous keys (v_layout
// transposed) takes at most the bytes of a V tile of rows.
#pragma once

namespace attune {

// Values of the knob q_place.
enum QPlace : int {
  kQShared = 0,                // read from shared memory for every block of columns
  kQRegisters = 1,             // kept in registers, loaded through separate shared memory
  kQRegistersThroughRing = 2,  // kept in registers, loaded through the ring before K and V need it
};

struct PrefillSm80Layout {
  int block_m;
  int block_n;
  int warps;
  int kv_slots;
  int share_kv;  // 0: a stage is a K slot and a V slot; 1: one slot that they use by turns
  int q_place;
  int head_dim_qk;
  int head_dim_v;
  int element_bytes = 2;
};

constexpr int prefill_sm80_row_bytes(int head_dim, int element_bytes = 2) {
  return (head_dim * element_bytes + 31) / 32 * 32;
}

constexpr int prefill_sm80_q_bytes(const PrefillSm80Layout& layout) {
  return layout.block_m * prefill_sm80_row_bytes(layout.head_dim_qk, layout.element_bytes);
}

constexpr int prefill_sm80_k_bytes(const PrefillSm80Layout& layout) {
  return layout.block_n * prefill_sm80_row_bytes(layout.head_dim_qk, layout.element_bytes);
}

constexpr int prefill_sm80_v_bytes(const PrefillSm80Layout& layout) {
  return layout.block_n * prefill_sm80_row_bytes(layout.head_dim_v, layout.element_bytes);
}

constexpr int prefill_sm80_ring_bytes(const PrefillSm80Layout& layout) {
  const int k = prefill_sm80_k_bytes(layout);
  const int v = prefill_sm80_v_bytes(layout);
  return layout.kv_slots * (layout.share_kv ? (k > v ? k : v) : k + v);
}

constexpr int prefill_sm80_ring_offset(const PrefillSm80Layout& layout) {
  return layout.q_place == kQRegistersThroughRing ? 0 : prefill_sm80_q_bytes(layout);
}

constexpr int prefill_sm80_state_offset(const PrefillSm80Layout& layout) {
  const int q = prefill_sm80_q_bytes(layout);
  const int ring = prefill_sm80_ring_bytes(layout);
  return layout.q_place == kQRegistersThroughRing ? (q > ring ? q : ring) : q + ring;
}

constexpr int prefill_sm80_shared_bytes(const PrefillSm80Layout& layout) {
  return prefill_sm80_state_offset(layout) + 16 * (1 + layout.warps);
}

}  // namespace attune
