// SPDX-License-Identifier: Apache-2.0
// The producer's loads for heads of more than 256 columns: K in parts (k_parts.cuh), and one slice
// of V's columns (v_slice.cuh). tma_producer.cuh uses them.
#pragma once

#include "cuda/sm90/k_parts.cuh"
#include "cuda/sm90/kv_pipeline.cuh"

namespace attune {

// Loads a tile of K part by part, each part as soon as its slot is free.
template <class Cursor>
__device__ __forceinline__ void load_parts(unsigned shared, const TensorMap& k, Cursor& cursor,
                                           int key, int head, int batch) {
  constexpr int kPanels = kLayout.panels_qk / kKParts;
#pragma unroll 1
  for (int part = 0; part < kKParts; ++part) {
    const int slot = cursor.slot();
    mbarrier_wait(shared + kLayout.k_empty + 8 * slot, cursor.parity() ^ 1, "k_empty");
    load_panels<kPanels, kBlockN, kPanelRowBytes>(shared + kLayout.k + slot * kLayout.k_slot_bytes,
                                                  k, shared + kLayout.k_full + 8 * slot,
                                                  part * kPanels * kPanelColumns, key, head, batch);
    cursor.advance();
  }
}

// Loads one slice of V: the columns from `column` on.
template <class Cursor>
__device__ __forceinline__ void load_slice(unsigned shared, const TensorMap& v, Cursor& cursor,
                                           int column, int key, int head, int batch) {
  const int slot = cursor.slot();
  mbarrier_wait(shared + kLayout.v_empty + 8 * slot, cursor.parity() ^ 1, "v_empty");
  load_panels<kLayout.panels_v, kBlockN, kPanelRowBytes>(
      shared + kLayout.v + slot * kLayout.v_slot_bytes, v, shared + kLayout.v_full + 8 * slot,
      column, key, head, batch);
  cursor.advance();
}

}  // namespace attune
