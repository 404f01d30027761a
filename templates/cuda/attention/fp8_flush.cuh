// SPDX-License-Identifier: Apache-2.0
// The sums that the accumulator of P V is flushed to. Used by fp8_consumer.cuh.
#pragma once

#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// What was flushed of O: fp32 sums in shared memory, each thread's own, so that no barrier is
// needed and no register held. Where O is rescaled only the factor is kept for the next time.
//
// | 16 bytes at                        | hold accumulators        |
// |------------------------------------|--------------------------|
// | (i / 4 * threads + thread) * 16    | i .. i + 3 of the thread |
template <int kCount, int kThreads>
class FlushedOutput {
 public:
  static constexpr int kBytes = kCount * kThreads * 4;

  // `address` of the kBytes that belong to the warpgroup.
  __device__ __forceinline__ FlushedOutput(unsigned address, int thread)
      : address_(address + thread * 16) {}

  __device__ __forceinline__ void clear() {
    empty_ = true;
    factor_[0] = factor_[1] = 1.f;
  }
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    factor_[0] *= factor[0];
    factor_[1] *= factor[1];
  }
  // Takes o over, which begins again at zero.
  __device__ __forceinline__ void take(float (&o)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      add(i, o);
      Vector16 sum;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sum.word[j] = __float_as_uint(o[i + j]);
        o[i + j] = 0.f;
      }
      store_shared_16(address_ + i / 4 * kStride, sum);
    }
    clear();
    empty_ = false;
  }
  __device__ __forceinline__ void give_back(float (&o)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) add(i, o);
  }

 private:
  static constexpr int kStride = 16 * kThreads;
  static_assert(kCount % 4 == 0, "accumulators are moved four at a time");

  __device__ __forceinline__ void add(int i, float (&o)[kCount]) const {
    if (empty_) return;
    const Vector16 sum = load_shared_16(address_ + i / 4 * kStride);
#pragma unroll
    for (int j = 0; j < 4; ++j) o[i + j] += __uint_as_float(sum.word[j]) * factor_[j / 2];
  }

  unsigned address_;
  bool empty_ = true;
  float factor_[2];
};

}  // namespace attune
