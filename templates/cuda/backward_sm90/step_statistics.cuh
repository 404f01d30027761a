// SPDX-License-Identifier: Apache-2.0
// Loads statistics (L2 or delta) of a step's queries, for products whose columns are queries. Of
// each eight queries a thread needs two; eight lanes read the same pair.
#pragma once

#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// The constructor loads the first kEarly pairs, ahead of a wait; load_late() loads the others. A
// load after a wait for products is exposed. It takes as long as the products of another warpgroup
// use all bandwidth of shared memory.
template <int kEarly>
class StepStatistics {
 public:
  // `from`: shared address of the step's statistics.
  __device__ __forceinline__ explicit StepStatistics(unsigned from)
      : from_(from + threadIdx.x % 4 * 8) {
#pragma unroll
    for (int i = 0; i < kEarly; ++i) load(i);
  }

  // Loads the pair of the queries from 8 * block8 on, unless the constructor has loaded it. Does
  // nothing past the last pair.
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
