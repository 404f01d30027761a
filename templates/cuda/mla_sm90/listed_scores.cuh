// SPDX-License-Identifier: Apache-2.0
// Scores of keys that lists name, in the consumers of mla_sm90. The loading warps store a bit for
// each key of a slot: whether the list names a key there.
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/sm90_layout.cuh"

namespace attune {

// Makes keys that cp.async has copied visible to this thread's wgmma. The thread has waited for the
// slot's barrier. TMA's keys need no fence. Warps that convert keys have their own.
__device__ __forceinline__ void see_copied_keys() {
  if constexpr (kGathersKeys && !kConvertsKeys) fence_proxy_async();
}

// The bits of the keys of the slot whose barrier is `full`, from key `first` on.
class ListedBits {
 public:
  __device__ __forceinline__ ListedBits(unsigned shared, unsigned full, int first) {
    const unsigned at = shared + kMlaLayout.listed + (full - (shared + kLayout.k_full));
    const unsigned low = load_shared_word(at), high = load_shared_word(at + 4);
    all_ = (low & high) == ~0u;
    bits_[0] = __funnelshift_r(low, high, first);
    bits_[1] = high >> first;
  }
  __device__ __forceinline__ bool all() const { return all_; }
  __device__ __forceinline__ bool has(int key) const {
    return (bits_[key / 32] >> key % 32 & 1u) != 0;
  }

 private:
  bool all_;
  unsigned bits_[2];
};

// Hides the scores of keys that the list does not name. Scores are (64 rows, kBlockN keys) over the
// warpgroup. A thread's first key is number `first`.
template <int kCount>
__device__ __forceinline__ void hide_unlisted(unsigned shared, unsigned full, int first,
                                              float (&s)[kCount]) {
  const ListedBits listed(shared, full, first);
  if (listed.all()) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (!listed.has(i / 4 * 8 + i % 2)) s[i] = hidden_score();
}

// Does the same where keys are rows: a thread has keys `first` and `first` + 8 of each row of Q.
template <int kCount>
__device__ __forceinline__ void hide_unlisted_rows(unsigned shared, unsigned full, int first,
                                                   float (&s)[kCount]) {
  const unsigned at = shared + kMlaLayout.listed + (full - (shared + kLayout.k_full));
  const unsigned bits = load_shared_word(at + first / 32 * 4) >> first % 32;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if ((bits >> i / 2 % 2 * 8 & 1u) == 0) s[i] = hidden_score();
}

}  // namespace attune
