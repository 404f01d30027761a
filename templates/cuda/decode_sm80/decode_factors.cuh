// SPDX-License-Identifier: Apache-2.0
// Scale factors per key in a decode kernel. Shared memory holds the factors of a slot's keys, first
// of K, then of V. K's factors multiply scores. V's factors multiply weights, which are rounded to
// fp16. So V's factors are relative to a unit: the largest factor so far, rounded up to a power of
// two. O is relative to the same unit. A factor that is not finite affects only the rows that see
// its key.
#pragma once

#include "cuda/decode_sm80/decode_items.cuh"
#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/key_factors.h"

namespace attune {

constexpr int kFactorBytes = decode_factor_bytes(kKeys), kVFactorsAt = kKeys * 4;

constexpr int kFactorArrivals = 32;  // of the lanes that load factors, at a slot's barrier

using FactorsAddress = unsigned;  // in shared memory, of the factors of a tile's keys

// The ring of factors of a warp's slots.
class KeyFactorRing {
 public:
  __device__ __forceinline__ KeyFactorRing(unsigned shared, int ring)
      : first_(shared + kShared.bytes + ring * (kKvSlots * kFactorBytes)) {}

  __device__ __forceinline__ FactorsAddress slot(int number) const {
    return first_ + number * kFactorBytes;
  }
  // Copies the factors of a tile. A lane has key lane % kKeys: of V for the upper lanes if a tile
  // has 16. A key past the end gets zero.
  __device__ __forceinline__ void copy(int number, const ScaleArgs& scales, int page, int row,
                                       int kv_head, bool exists, unsigned barrier) const {
    const int lane = threadIdx.x % 32;
    const unsigned to = slot(number) + lane % kKeys * 4;
    if (kKeys == 32 || lane < kKeys) copy_one(to, scales.k_scale, page, row, kv_head, exists);
    if (kKeys == 32 || lane >= kKeys)
      copy_one(to + kVFactorsAt, scales.v_scale, page, row, kv_head, exists);
    if constexpr (kLoads != 0) cp_async_arrive(barrier);
  }

 private:
  static __device__ __forceinline__ void copy_one(unsigned to, const ScaleView& scale, int page,
                                                  int row, int kv_head, bool exists) {
    const long long at = exists ? key_factor_at(scale, page, row, kv_head) : 0;
    cp_async_4(to, scale.data + at, exists ? 4 : 0);
  }

  const unsigned first_;
};

// Loads the factors of the two keys whose scores a lane has in score tile `n`.
__device__ __forceinline__ void factors_of_lane(unsigned factors, int n, float (&two)[2]) {
  const unsigned at = factors + (n * 8 + static_cast<int>(threadIdx.x) % 4 * 2) * 4;
  load_shared_pair(at, &two[0], &two[1]);
}

// Applies factors, and has the unit that O is relative to, which is the same in all lanes of a
// warp. `factors`: address of the factors of a tile's keys.
class KeyFactors {
 public:
  template <int kTiles>
  __device__ __forceinline__ void multiply_scores(FactorsAddress factors,
                                                  float (&scores)[kTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      float two[2];
      factors_of_lane(factors, n, two);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] *= two[i % 2];
    }
  }
  // Raises the unit if a factor of V is above it.
  template <int kTiles>
  __device__ __forceinline__ void raise_unit(FactorsAddress factors, float (&output)[kTiles][4]) {
    unsigned largest = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      float two[2];
      factors_of_lane(factors + kVFactorsAt, n, two);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned magnitude = __float_as_uint(two[i]) & 0x7fffffffu;
        if (magnitude < 0x7f800000u) largest = max(largest, magnitude);  // finite
      }
    }
    largest = __reduce_max_sync(~0u, largest);
    if (largest <= __float_as_uint(unit_)) return;
    constexpr unsigned kMantissa = 0x7fffff, kMost = 0x7e800000;  // 2^126
    const float raised = __uint_as_float(min((largest + kMantissa) & ~kMantissa, kMost));
    if (raised == unit_) return;  // the unit has its largest allowed value
    const float factor = unit_ == 0.0f ? 0.0f : unit_ * inverse(raised);
    unit_ = raised;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) output[n][i] *= factor;
    }
  }
  // Multiplies the weights of score tile `n` by the factors of their keys, relative to the unit.
  __device__ __forceinline__ void multiply_weights(FactorsAddress factors, int n,
                                                   float (&weights)[4]) const {
    float two[2];
    factors_of_lane(factors + kVFactorsAt, n, two);
    const float unit = inverse(unit_);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      weights[i] = weights[i] == 0.0f ? 0.0f : weights[i] * (two[i % 2] * unit);
  }
  // Returns an element of O without the unit.
  __device__ __forceinline__ float output(float relative) const { return unit_ * relative; }

 private:
  // Returns 1 / power for a power of two. Returns a finite number for 0, since all factors are 0
  // then.
  static __device__ __forceinline__ float inverse(float power) {
    return __uint_as_float((254u << 23) - __float_as_uint(power));
  }

  float unit_ = 0.0f;
};

}  // namespace attune
