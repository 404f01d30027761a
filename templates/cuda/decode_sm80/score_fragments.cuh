// SPDX-License-Identifier: Apache-2.0
// Tells where a warp has the scores of a tile of keys: element i of fragment n.
#pragma once

#include "cuda/decode_sm80/decode_slots.cuh"

namespace attune {

// S = Q K^T: a fragment has 16 rows of Q and 8 keys.
struct RowsFirst {
  static constexpr int kFragments = kKeys / 8;
  static constexpr int kRowsOfLane = 2, kKeysOfEight = 2;

  // Returns a row of a lane, which is row `of_lane` of kRowsOfLane.
  static __device__ __forceinline__ int row_of(int lane, int of_lane) {
    return lane / 4 + 8 * of_lane;
  }
  static __device__ __forceinline__ constexpr int row_of_lane(int, int i) { return i / 2; }
  // Returns the eight keys that have the element's. Of these a lane has kKeysOfEight from
  // first_key() on, the element key i % kKeysOfEight of them.
  static __device__ __forceinline__ constexpr int eight_of(int n, int) { return n; }
  static __device__ __forceinline__ int first_key() {
    return static_cast<int>(threadIdx.x) % 4 * 2;
  }
};

// S^T = K Q^T: a fragment has 16 keys and 8 rows of Q. Fragments of the same keys are neighbours.
struct KeysFirst {
  static constexpr int kRowTiles = kRows / 8;
  static constexpr int kFragments = kKeys / 16 * kRowTiles;
  static constexpr int kRowsOfLane = 2 * kRowTiles, kKeysOfEight = 1;

  static __device__ __forceinline__ int row_of(int lane, int of_lane) {
    return lane % 4 * 2 + of_lane % 2 + of_lane / 2 * 8;
  }
  static __device__ __forceinline__ constexpr int row_of_lane(int n, int i) {
    return n % kRowTiles * 2 + i % 2;
  }
  static __device__ __forceinline__ constexpr int eight_of(int n, int i) {
    return n / kRowTiles * 2 + i / 2;
  }
  static __device__ __forceinline__ int first_key() {
    return static_cast<int>(threadIdx.x) % 32 / 4;
  }
};

template <bool kFirst>
struct ScoreLayout {
  using Type = RowsFirst;
};
template <>
struct ScoreLayout<true> {
  using Type = KeysFirst;
};
using Fragments = ScoreLayout<kGroupFactors>::Type;

}  // namespace attune
