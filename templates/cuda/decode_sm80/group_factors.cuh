// SPDX-License-Identifier: Apache-2.0
// Factors of groups of columns in a decode kernel over caches of 4 bits (shared/nibble_rows.h).
// Shared memory holds the rows of factors of a slot's keys, first of K, then of V. Keys and values
// are multiplied by factors where codes become fp16 (products_4bit.cuh). There a factor is its
// e4m3 bits as the bits of an fp16: the factor times 2^-8. The scale of scores and the end of rows
// of O have the other 2^8.
#pragma once

#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/decode_sm80/nibble_copies.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/permute_bytes.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/nibble_rows.h"

namespace attune {

constexpr int kKFactorBytes = group_row_bytes(kHeadDimQk, kGroupColumns);
constexpr int kVFactorBytes = group_row_bytes(kHeadDimV, kGroupColumns);
constexpr int kGroupSlotBytes = group_rows_bytes(kKeys, kHeadDimQk, kHeadDimV, kGroupColumns);
static_assert(kColumnWarps == 1, "a warp reads whole rows of 4 bits");

constexpr int kGroupArrivals = 32;  // of the lanes that load factors, at a slot's barrier

using GroupsAddress = unsigned;  // in shared memory, of the factors of a tile's keys

// The ring of factors of a warp's slots.
class GroupRing {
 public:
  __device__ __forceinline__ GroupRing(const GroupFactorArgs& groups, unsigned shared, int ring)
      : first_(shared + kShared.bytes + ring * (kKvSlots * kGroupSlotBytes)),
        rows_(groups.k, groups.v) {}

  __device__ __forceinline__ GroupsAddress slot(int number) const {
    return first_ + number * kGroupSlotBytes;
  }
  // Sets the head of later tiles.
  __device__ __forceinline__ void take(int kv_head) { rows_.take(kv_head); }
  // Copies the factors of a tile. A lane has key lane % kKeys: of V for the upper lanes if a tile
  // has 16. A key past the end gets zeros.
  __device__ __forceinline__ void copy(int number, int page, int row, bool exists,
                                       unsigned barrier) const {
    const int lane = threadIdx.x % 32, key = lane % kKeys;
    const unsigned to = slot(number);
    if constexpr (kOneRow) {
      copy_row<kKFactorBytes>(to + lane * kKFactorBytes, rows_.of_lane().row(page, row), exists);
    } else {
      if (kKeys == 32 || lane < kKeys)
        copy_row<kKFactorBytes>(to + key * kKFactorBytes, rows_.of_k().row(page, row), exists);
      if (kKeys == 32 || lane >= kKeys)
        copy_row<kVFactorBytes>(to + kKeys * kKFactorBytes + key * kVFactorBytes,
                                rows_.of_v().row(page, row), exists);
    }
    if constexpr (kLoads != 0) cp_async_arrive(barrier);
  }

 private:
  template <int kBytes>
  static __device__ __forceinline__ void copy_row(unsigned to, const char* from, bool exists) {
    constexpr int kOnce = group_row_alignment(kBytes);
#pragma unroll
    for (int i = 0; i < kBytes; i += kOnce) {
      if constexpr (kOnce == 4) cp_async_4(to + i, from + i, exists ? 4 : 0);
      if constexpr (kOnce == 8) cp_async_8(to + i, from + i, exists ? 8 : 0);
      if constexpr (kOnce == 16) cp_async_16<0>(to + i, from + i, exists ? 16 : 0);
    }
  }

  static constexpr bool kOneRow = kKeys == 16 && kKFactorBytes == kVFactorBytes;  // a lane's

  const unsigned first_;
  RowsOfHeads rows_;
};

// Loads a row of factors.
template <int kBytes>
__device__ __forceinline__ void load_factor_row(unsigned address, unsigned (&words)[kBytes / 4]) {
  if constexpr (kBytes % 16 == 0) {
    const Vector16 all = load_shared_16(address);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = all.word[i];
  } else if constexpr (kBytes % 8 == 0) {
    float two[2];
    load_shared_pair(address, &two[0], &two[1]);
    words[0] = __float_as_uint(two[0]);
    words[1] = __float_as_uint(two[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) words[i] = load_shared_word(address + 4 * i);
  }
}

// The rows of factors of kRows keys, `step` bytes apart. Without registers for all, words are
// loaded where they are used.
template <int kRows, int kBytes>
class FactorRows {
 public:
  __device__ __forceinline__ FactorRows(unsigned first, int step) : first_(first), step_(step) {
    if constexpr (kHasRegisters) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) load_factor_row<kBytes>(first + row * step, kept_[row]);
    }
  }
  __device__ __forceinline__ unsigned word(int row, int at) const {
    if constexpr (kHasRegisters) return kept_[row][at];
    return load_shared_word(first_ + row * step_ + 4 * at);
  }

 private:
  const unsigned first_;
  const int step_;
  unsigned kept_[kHasRegisters ? kRows : 1][kBytes / 4];
};

// The factors of the codes of K that a lane converts: eight columns of 32 for a key of each score
// tile.
class KeyGroups {
 public:
  __device__ __forceinline__ explicit KeyGroups(GroupsAddress groups)
      : selector_(0x4440u + (kGroupColumns == 16 ? threadIdx.x % 4 / 2 : 0u)),
        rows_(groups + threadIdx.x % 32 / 4 * kKFactorBytes, 8 * kKFactorBytes) {}
  // Returns the factor for columns of chunk `chunk` of 32, twice.
  __device__ __forceinline__ unsigned at(int n, int chunk) const {
    const int byte = kGroupColumns == 16 ? 2 * chunk : chunk;
    return permuted(rows_.word(n, byte / 4), 0u, selector_ + byte % 4) * 0x00800080u;
  }

 private:
  const unsigned selector_;
  const FactorRows<kKeys / 8, kKFactorBytes> rows_;
};

// The factors of the codes of V that a lane converts: four columns of 32 for two neighbouring keys
// of each eight of a step of 16 keys.
class ValueGroups {
 public:
  __device__ __forceinline__ ValueGroups(GroupsAddress groups, int step)
      : low_(of_eight(groups, 2 * step), kVFactorBytes),
        high_(of_eight(groups, 2 * step + 1), kVFactorBytes) {}
  // Returns the factors of the two keys of an eight for columns of chunk `chunk` of 32.
  __device__ __forceinline__ unsigned at(int half, int chunk) const {
    const auto& rows = half == 0 ? low_ : high_;
    const int byte = kGroupColumns == 16 ? 2 * chunk : chunk, of_two = byte - byte % (kBytes * 2);
    // The bytes of two chunks for both keys, then those of one chunk
    const unsigned first =
        kGroupColumns == 16 ? 0x6240u + threadIdx.x % 32 / 16 * 0x1111u : 0x5140u;
    const unsigned two =
        permuted(rows.word(0, byte / 4), rows.word(1, byte / 4), first + of_two % 4 * 0x1111u);
    return permuted(two, 0u, chunk % 2 == 0 ? 0x4140 : 0x4342) * 0x80u;
  }

 private:
  static constexpr int kBytes = 32 / kGroupColumns;  // of a chunk
  static __device__ __forceinline__ unsigned of_eight(GroupsAddress groups, int number) {
    return groups + kKeys * kKFactorBytes +
           (number * 8 + static_cast<int>(threadIdx.x) % 4 * 2) * kVFactorBytes;
  }

  const FactorRows<2, kVFactorBytes> low_, high_;
};

// Returns a score, or a value of O, without the factors' unit of 2^-8.
__device__ __forceinline__ float without_unit(float value) { return value * 256.0f; }

}  // namespace attune
