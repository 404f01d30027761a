// SPDX-License-Identifier: Apache-2.0
// Tiles of consecutive keys: listed_keys.cuh without effect.
#pragma once

namespace none {

struct KeysAddress {};

struct TileKeys {
  int first;

  __device__ __forceinline__ TileKeys(KeysAddress, int key) : first(key) {}
  __device__ __forceinline__ int at(int n, int i) const { return first + n * 8 + i % 2; }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
