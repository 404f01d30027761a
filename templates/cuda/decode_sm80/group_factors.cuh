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
  __device__ __forceinline__ GroupRing(unsigned shared, int ring)
      : first_(shared + kShared.bytes + ring * (kKvSlots * kGroupSlotBytes)) {}

  __device__ __forceinline__ GroupsAddress slot(int number) const {
    return first_ + number * kGroupSlotBytes;
  }
  // Sets the head of later tiles.
  __device__ __forceinline__ void take(const GroupFactorArgs& groups, int kv_head) {
    if constexpr (kOneRow)
      own_ = rows_of_lane(groups.k, groups.v, kv_head);
    else
      k_ = rows_of_head(groups.k, kv_head), v_ = rows_of_head(groups.v, kv_head);
  }
  // Copies the factors of a tile. A lane has key lane % kKeys: of V for the upper lanes if a tile
  // has 16. A key past the end gets zeros.
  __device__ __forceinline__ void copy(int number, int page, int row, bool exists,
                                       unsigned barrier) const {
    const int lane = threadIdx.x % 32, key = lane % kKeys;
    const unsigned to = slot(number);
    if constexpr (kOneRow) {
      copy_row<kKFactorBytes>(to + lane * kKFactorBytes, own_.row(page, row), exists);
    } else {
      if (kKeys == 32 || lane < kKeys)
        copy_row<kKFactorBytes>(to + key * kKFactorBytes, k_.row(page, row), exists);
      if (kKeys == 32 || lane >= kKeys)
        copy_row<kVFactorBytes>(to + kKeys * kKFactorBytes + key * kVFactorBytes, v_.row(page, row),
                                exists);
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
  HeadRows own_, k_, v_;  // own_ or the others are used
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

// The factors of the codes of K that a lane converts: eight columns of 32 for a key of each score
// tile.
class KeyGroups {
 public:
  __device__ __forceinline__ explicit KeyGroups(GroupsAddress groups) {
    const int lane = threadIdx.x % 32;
    selector_ = 0x4440u + (kGroupColumns == 16 ? lane % 4 / 2 : 0);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
      load_factor_row<kKFactorBytes>(groups + (n * 8 + lane / 4) * kKFactorBytes, rows_[n]);
  }
  // Returns the factor for columns of chunk `chunk` of 32, twice.
  __device__ __forceinline__ unsigned at(int n, int chunk) const {
    const int byte = kGroupColumns == 16 ? 2 * chunk : chunk;
    return permuted(rows_[n][byte / 4], 0u, selector_ + byte % 4) * 0x00800080u;
  }

 private:
  unsigned selector_, rows_[kKeys / 8][kKFactorBytes / 4];
};

// The factors of the codes of V that a lane converts: four columns of 32 for two neighbouring keys
// of each eight of a step of 16 keys.
class ValueGroups {
 public:
  __device__ __forceinline__ ValueGroups(GroupsAddress groups, int step) {
    const int lane = threadIdx.x % 32;
    const unsigned first = kGroupColumns == 16 ? 0x6240u + lane / 16 * 0x1111u : 0x5140u;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned at =
          groups + kKeys * kKFactorBytes + (step * 16 + half * 8 + lane % 4 * 2) * kVFactorBytes;
      unsigned even[kVFactorBytes / 4], odd[kVFactorBytes / 4];
      load_factor_row<kVFactorBytes>(at, even);
      load_factor_row<kVFactorBytes>(at + kVFactorBytes, odd);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const int byte = kGroupColumns == 16 ? 4 * pair : 2 * pair;
        two_chunks_[half][pair] =
            permuted(even[byte / 4], odd[byte / 4], first + byte % 4 * 0x1111u);
      }
    }
  }
  // Returns the factors of the two keys for columns of chunk `chunk` of 32.
  __device__ __forceinline__ unsigned at(int half, int chunk) const {
    return permuted(two_chunks_[half][chunk / 2], 0u, chunk % 2 == 0 ? 0x4140 : 0x4342) * 0x80u;
  }

 private:
  static constexpr int kPairs = (kHeadDimV / 32 + 1) / 2;
  unsigned two_chunks_[2][kPairs];
};

// Returns a score, or a value of O, without the factors' unit of 2^-8.
__device__ __forceinline__ float without_unit(float value) { return value * 256.0f; }

}  // namespace attune
