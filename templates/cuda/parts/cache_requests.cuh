// SPDX-License-Identifier: Apache-2.0
// The requests of a call of attention_kvcache, as warps of a CUDA kernel read them, and the sums
// over lanes by which the warps number their work.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/request_scores.cuh"  // where kRequestLengths, else none/
#include "shared/layouts/decode_requests.h"

namespace attune {

struct DecodeRule {
  static constexpr Mask mask = kMask;
  static constexpr int window_left = kWindowLeft, window_right = kWindowRight;
};

// Reads requests 32 at a time. Each lane keeps one of them, so that a warp waits for memory once
// per 32 requests. All lanes call its functions.
class CacheRequests {
 public:
  __device__ __forceinline__ explicit CacheRequests(const KernelParts& parts) : parts_(parts) {
    load<true>(0);
  }

  // Loads the requests from `first` on, a multiple of 32. kThroughL2 bypasses the L1 cache. It is
  // needed if the previous grid may still write the requests, or if they were read while that grid
  // ran.
  template <bool kThroughL2 = false>
  __device__ __forceinline__ void load(int first) {
    first_ = first;
    own_ = read<kThroughL2>(&slot_);
  }
  // Reads the requests again. Returns true if none has changed. Always returns false for more than
  // 32 requests.
  __device__ __forceinline__ bool still_are() {
    if (parts_.base.batch > 32) return false;
    const DecodeRequest was = own_;
    const int slot = slot_;
    own_ = read<true>(&slot_);
    return __all_sync(~0u, slot_ == slot && own_.rows == was.rows && own_.length == was.length &&
                               own_.first_row == was.first_row && own_.first_key == was.first_key);
  }
  __device__ __forceinline__ DecodeRequest operator[](int number) {
    if ((number ^ first_) >= 32) load<true>(number / 32 * 32);
    const int lane = number % 32;
    return {kHasBegins ? __shfl_sync(~0u, own_.rows, lane) : parts_.base.seqlen_q,
            __shfl_sync(~0u, own_.length, lane),
            kHasBegins ? __shfl_sync(~0u, own_.first_row, lane) : 0,
            kHasKeyBegins ? __shfl_sync(~0u, own_.first_key, lane) : 0};
  }
  // Returns the cache slot of request `number`, which must be the last argument of operator[].
  __device__ __forceinline__ int slot(int number) const {
    return __shfl_sync(~0u, slot_, number % 32);
  }
  // True if this lane has a request.
  __device__ __forceinline__ bool has_own() const {
    return first_ + static_cast<int>(threadIdx.x) % 32 < parts_.base.batch;
  }
  __device__ __forceinline__ const DecodeRequest& own() const { return own_; }

 private:
  template <bool kThroughL2>
  __device__ __forceinline__ DecodeRequest read(int* slot) const {
    const int number = first_ + static_cast<int>(threadIdx.x) % 32;
    *slot = number;
    if (number >= parts_.base.batch) return {0, 0, 0, 0};
    if (kHasKeyBegins) *slot = 0;
    if (!kHasPages && parts_.cache.slots != nullptr)
      *slot = list_word<kThroughL2>(parts_.cache.slots + number);
    return decode_request<kHasBegins, kHasKeyBegins, kThroughL2>(parts_.base, parts_.cache, number);
  }

  const KernelParts& parts_;
  int first_;
  DecodeRequest own_;
  int slot_;
};

__device__ __forceinline__ int sum_of_lanes_before(int value, int lane) {
  int sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  return sum - value;
}

}  // namespace attune
