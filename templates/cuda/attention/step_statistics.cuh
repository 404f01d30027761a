// SPDX-License-Identifier: Apache-2.0
// Statistics of a step's rows, L2 or delta, where queries are a thread's columns: of each eight
// queries a pair, which eight lanes read.
#pragma once

#include "cuda/ptx/load_shared_pair.cuh"

namespace attune {

// The first kEarly pairs are loaded when this is made, ahead of a wait; the others when they are
// asked for. Behind a wait for products a load stands alone, for as long as the products of another
// warpgroup take shared memory's bandwidth.
template <int kEarly>
class StepStatistics {
 public:
  // `from`: where those of the step stand in shared memory.
  __device__ __forceinline__ explicit StepStatistics(unsigned from)
      : from_(from + threadIdx.x % 4 * 8) {
#pragma unroll
    for (int i = 0; i < kEarly; ++i) load(i);
  }

  // The pair of queries 8 * block8 on, unless it came early. There is none past the last.
  __device__ __forceinline__ void load_late(int block8) {
    if (block8 >= kEarly && block8 < kKeyBlockM / 8) load(block8);
  }

  __device__ __forceinline__ float of(int block8, int query) const { return pairs_[block8][query]; }

 private:
  __device__ __forceinline__ void load(int block8) {
    load_shared_pair(from_ + block8 * 32, &pairs_[block8][0], &pairs_[block8][1]);
  }

  unsigned from_;
  float pairs_[kKeyBlockM / 8][2];
};

}  // namespace attune
