// SPDX-License-Identifier: Apache-2.0
// Tiles of consecutive keys: listed_keys.cuh without effect.
#pragma once

#include "cuda/decode_sm80/score_fragments.cuh"

namespace none {

struct KeysAddress {};

struct TileKeys {
  int first;

  __device__ __forceinline__ TileKeys(KeysAddress, int key) : first(key) {}
  __device__ __forceinline__ int at(int eight, int i) const {
    return first + eight * 8 + i % attune::Fragments::kKeysOfEight;
  }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
