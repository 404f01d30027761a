// SPDX-License-Identifier: Apache-2.0
// The keys of a decode kernel's tiles if lists name them. Shared memory has the keys of each slot,
// with -1 for an entry that names no key; they follow the factors of keys.
#pragma once

#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/decode_sm80/group_factors.cuh"  // where kGroupFactors, else none/
#include "cuda/decode_sm80/score_fragments.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/layouts/decode_layout.h"

namespace attune {

constexpr int kListedFactorBytes = kKeyFactors ? decode_factor_bytes(kKeys) : kGroupSlotBytes;

using KeysAddress = unsigned;  // in shared memory, of the keys of a tile

// The ring of keys of a warp's slots.
class ListedKeyRing {
 public:
  __device__ __forceinline__ ListedKeyRing(unsigned shared, int ring)
      : first_(shared + kShared.bytes + kWarps * kKvSlots * kListedFactorBytes +
               ring * (kKvSlots * decode_key_bytes(kKeys))) {}
  __device__ __forceinline__ KeysAddress slot(int number) const {
    return first_ + number * decode_key_bytes(kKeys);
  }
  // Stores the key of each lane, which is key lane % kKeys of the tile.
  __device__ __forceinline__ void store(int number, int key) const {
    store_shared_word(slot(number) + static_cast<int>(threadIdx.x) % kKeys * 4, key);
  }

 private:
  const unsigned first_;
};

// The keys of the scores that a lane has: of element i, among eight keys.
class TileKeys {
 public:
  __device__ __forceinline__ TileKeys(KeysAddress keys, int) {
#pragma unroll
    for (int eight = 0; eight < kKeys / 8; ++eight) {
      const unsigned at = keys + (eight * 8 + Fragments::first_key()) * 4;
#pragma unroll
      for (int i = 0; i < kOfEight; ++i)
        keys_[eight][i] = static_cast<int>(load_shared_word(at + i * 4));
    }
  }
  __device__ __forceinline__ int at(int eight, int i) const { return keys_[eight][i % kOfEight]; }

 private:
  static constexpr int kOfEight = Fragments::kKeysOfEight;

  int keys_[kKeys / 8][kOfEight];
};

}  // namespace attune
