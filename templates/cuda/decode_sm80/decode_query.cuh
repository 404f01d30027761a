// SPDX-License-Identifier: Apache-2.0
// The rows of Q of an item, as fragments of mma.sync: in registers, or in shared memory if they are
// long. A lane has columns of the rows lane / 4 and lane / 4 + 8.
#pragma once

#include "cuda/decode_sm80/decode_columns.cuh"
#include "cuda/decode_sm80/decode_items.cuh"
#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/decode_sm80/products_16bit.cuh"  // unless kAccuracy, else products_8bit.cuh
#include "cuda/decode_sm80/products_4bit.cuh"   // where kGroupFactors
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

constexpr int kQkSteps = kColumns.qk / 16;
static_assert(kHeadDimQk % 16 == 0 && kHeadDimV % 16 == 0 && kKeys % 16 == 0, "steps of mma.sync");

using Products = CacheProducts<kKvBits>;
constexpr bool kKeepsQ = decode_keeps_q(kColumns.qk, kRows);  // q stays in shared memory

class DecodeQuery {
 public:
  __device__ __forceinline__ explicit DecodeQuery(unsigned shared)
      : kept_(shared + kShared.q_at + threadIdx.x / 32 * decode_q_bytes(kColumns.qk, kRows)) {}

  // Reads row lane / 4 + 8 * half, or zeros if it does not exist.
  __device__ __forceinline__ void read(const KernelParts& parts, const DecodeItem& item, int half,
                                       bool exists) {
    const int lane = threadIdx.x % 32, row = lane / 4 + 8 * half;
    const auto* const q =
        reinterpret_cast<const unsigned*>(static_cast<const unsigned short*>(parts.base.q.data) +
                                          (exists ? item.in(parts.base.q, row) : 0));
#pragma unroll
    for (int step = 0; step < kQkSteps; ++step) {
      const int at = Products::first_word(lane, step), word = KeyColumns::in_head(step * 16) / 2;
      const bool has = exists && KeyColumns::exists(step * 16);
      unsigned first = has ? __ldg(q + word + at) : 0u;
      unsigned second = has ? __ldg(q + word + at + Products::kSecondWord) : 0u;
      first = Products::q_word(first);
      second = Products::q_word(second);
      Products::arrange(first, second);
      if constexpr (kKeepsQ) {
        const unsigned to = kept_ + row * kRowBytes + step * 32 + lane % 4 * 4;
        store_shared_word(to, static_cast<int>(first));
        store_shared_word(to + 16, static_cast<int>(second));
      } else {
        q_[step][half] = first;
        q_[step][half + 2] = second;
      }
    }
  }
  // Ends reading: all lanes of the warp call it.
  __device__ __forceinline__ void end_reading() const {
    if constexpr (kKeepsQ) __syncwarp();
  }

  // Returns the words of the steps of one load, from `step` on. After the last step it comes again.
  template <int kSteps>
  __device__ __forceinline__ void get(int step, unsigned (&q)[kSteps][4]) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) get_step(min(step + i, kQkSteps - 1), q[i]);
  }

 private:
  // Returns the words of 16 columns: those of both rows, then those of the next eight columns.
  __device__ __forceinline__ void get_step(int step, unsigned (&q)[4]) const {
    if constexpr (kKeepsQ) {
      const int lane = threadIdx.x % 32;
      ldmatrix_x4(q, kept_ + lane % 16 * kRowBytes + lane / 16 * 16 + step * 32);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) q[i] = q_[step][i];
    }
  }

  static constexpr int kRowBytes = kColumns.qk * 2 + 16;

  const unsigned kept_;
  unsigned q_[kKeepsQ ? 1 : kQkSteps][4];
};

}  // namespace attune
