// SPDX-License-Identifier: Apache-2.0
// The sums that the accumulator of P V is flushed to, in shared memory or the workspace. Used by
// fp8_consumer.cuh.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// The place of flushed sums: shared memory, by a 32-bit address, or the workspace.
template <bool kInShared>
struct SumsPlace {
  using Address = unsigned;
};
template <>
struct SumsPlace<false> {
  using Address = char*;
};
__device__ __forceinline__ Vector16 load_sums(unsigned address) { return load_shared_16(address); }
__device__ __forceinline__ Vector16 load_sums(const char* address) {
  return *reinterpret_cast<const Vector16*>(address);
}
__device__ __forceinline__ void store_sums(unsigned address, const Vector16& sums) {
  store_shared_16(address, sums);
}
__device__ __forceinline__ void store_sums(char* address, const Vector16& sums) {
  *reinterpret_cast<Vector16*>(address) = sums;
}

// Flushed sums of O, in fp16; each thread has its own. In shared memory they use the bytes where
// the thread's own warp stages its 16 rows of O at the end of the tile. So they need no barrier
// among warps, no register and no additional shared memory. No element of O is larger than the
// largest number of V times the row's sum. So O divided by the power of two above that sum, times
// 2^kGainLog2, fits fp16, with a factor of 2 left for P rounded up. When O is rescaled, only the
// factor changes; the sums are multiplied at the next flush.
//
// | 16 bytes at                                         | hold accumulators        |
// |-----------------------------------------------------|--------------------------|
// | i / 32 * kPanelBytes + (i / 8 % 4 * 32 + lane) * 16 | i .. i + 7 of the thread |
template <int kCount, int kPanelBytes, int kGainLog2>
class FlushedOutput {
 public:
  // Returns the offset of a thread's sums from the sums of its warpgroup.
  static __device__ __forceinline__ unsigned offset_of_thread(int thread) {
    return thread / 32 * (kPanelBytes / 4) + thread % 32 * 16;
  }

  __device__ __forceinline__ void clear() {
    empty_ = true;
    factor_[0] = factor_[1] = 0.f;
  }
  __device__ __forceinline__ bool empty() const { return empty_; }

  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    factor_[0] *= factor[0];
    factor_[1] *= factor[1];
  }
  // Adds o to the sums; the caller then restarts o. `sum` has the sums of whole rows up to here.
  // `address` is where the thread's sums begin.
  template <class Address>
  __device__ __forceinline__ void take(Address address, const float (&sum)[2], float (&o)[kCount]) {
    const unsigned kept = empty_ ? 0u : ~0u;  // sums that were never written may be NaN
    float inverse[2];
    unsigned old[2];  // the factor of the sums, twice
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A power of two, at most a factor of 2 below the sum. A row that sees anything has a sum
      // above 1.
      const unsigned power = max(__float_as_uint(sum[half]) & 0x7f800000u, 0x3f800000u);
      inverse[half] = __uint_as_float(0x7f000000u - kScaleBits - power);
      const float shrunk = factor_[half] * inverse[half];
      old[half] = pack<Dtype::kFp16>(shrunk, shrunk);
      factor_[half] = __uint_as_float(power + kScaleBits);
    }
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {
      // Loads the sums even if there are none yet: branches around O would take twice as long to
      // compile.
      Vector16 sums = load_sums(address + offset_of(i));
#pragma unroll
      for (int j = 0; j < 8 && i + j < kCount; j += 2) {
        const int half = j / 2 % 2;
        const unsigned more =
            pack<Dtype::kFp16>(o[i + j] * inverse[half], o[i + j + 1] * inverse[half]);
        sums.word[j / 2] = fma_fp16(sums.word[j / 2] & kept, old[half], more);
      }
      store_sums(address + offset_of(i), sums);
    }
    empty_ = false;
  }
  template <class Address>
  __device__ __forceinline__ void give_back(Address address, float (&o)[kCount]) const {
    if (empty_) return;
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {
      const Vector16 sums = load_sums(address + offset_of(i));
#pragma unroll
      for (int j = 0; j < 8 && i + j < kCount; ++j)
        o[i + j] =
            fmaf(fp16_to_float(static_cast<unsigned short>(sums.word[j / 2] >> 16 * (j % 2))),
                 factor_[j / 2 % 2], o[i + j]);
    }
  }

 private:
  static constexpr unsigned kScaleBits = static_cast<unsigned>(1 - kGainLog2) << 23;
  static_assert(kCount % 4 == 0, "accumulators are moved four or eight at a time");

  static __device__ constexpr unsigned offset_of(int i) {
    return i / 32 * kPanelBytes + i / 8 % 4 * 512;
  }

  bool empty_ = true;
  float factor_[2];  // of the stored sums
};

}  // namespace attune
