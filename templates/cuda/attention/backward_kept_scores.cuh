// SPDX-License-Identifier: Apache-2.0
// dS^T of the kernel of backward_fused.cuh: each warpgroup writes that of its keys to shared
// memory, from where both multiply it. What makes it of a step is derived from this:
// backward_whole_steps.cuh, backward_steps_in_halves.cuh.
#pragma once

#include "cuda/attention/backward_ds.cuh"
#include "cuda/attention/backward_keys.cuh"

namespace attune {

class KeptScores : public KeysConsumer<true, true> {
 protected:
  using Scores = float[kKeyBlockM / 2];
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];

  // In the order of keys dQ of a step before is in registers, too: steps of 128 rows leave none.
  static constexpr EarlyPairs kEarlyHere = kKeyBlockM > kWarpgroupRows ? EarlyPairs{} : kEarly;

  __device__ __forceinline__ KeptScores(const AttentionArgs& args, unsigned shared, int warpgroup)
      : KeysConsumer(args, shared, warpgroup), shared_(shared) {}

  __device__ __forceinline__ static int warpgroup() {
    return __shfl_sync(~0u, reread_thread_index() / kWarpgroupThreads, 0) - 1;
  }

  // P of part `kPart` of the rows, of kCount words.
  template <int kPart, int kCount>
  __device__ __forceinline__ static void round(const Scores& s, unsigned (&p)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      p[i] = pack<kDtypeQ>(s[2 * (kPart * kCount + i)], s[2 * (kPart * kCount + i) + 1]);
  }

  // dS^T of a part of a step's rows, as rows of 64 keys. Nobody reads a slot that is written: in
  // the order of keys whoever writes step j has seen the other warpgroup keep step j - 2, behind
  // its dQ of step j - 4; in no order slots are given back.
  template <int kPart, int kCount>
  __device__ __forceinline__ void keep(const unsigned (&ds)[kCount]) const {
    write_ds(kept_place<kPart * kCount * 4>(), ds);
  }

  // Returns the shared address at which this thread writes dS^T of a step, from row kFirst on.
  template <int kFirst = 0>
  __device__ __forceinline__ unsigned kept_place() const {
    const int thread = reread_thread_index() % kWarpgroupThreads;
    const int offset = ds_offset<kFirst>(thread);
    return ds_tile(shared_, kept_) + warpgroup() * kDsPanelBytes + offset;
  }

  __device__ __forceinline__ void tell_kept() {
    tell_ds(shared_, kept_);
    ++kept_;
  }

  unsigned shared_;
  unsigned kept_ = 0;  // steps whose dS this warpgroup has written
};

}  // namespace attune
