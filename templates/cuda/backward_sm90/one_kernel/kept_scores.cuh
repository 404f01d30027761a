// SPDX-License-Identifier: Apache-2.0
// Keeps dS^T in the kernel that makes all gradients, if its warpgroups of keys also make dQ: each
// writes dS^T of its keys to shared memory, and both multiply it from there. Derived classes make
// dS^T of a step: whole_steps.cuh, steps_in_halves.cuh.
#pragma once

#include "cuda/backward_sm90/keys.cuh"
#include "cuda/backward_sm90/one_kernel/ds.cuh"

namespace attune {

class KeptScores : public KeysConsumer<true, true> {
 protected:
  using Scores = float[kKeyBlockM / 2];
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];

  // Early loads of statistics. If blocks add in the order of keys, registers also hold dQ of an
  // earlier step. Then steps of 128 rows leave no registers for early loads.
  static constexpr EarlyPairs kEarlyHere = kKeyBlockM > kWarpgroupRows ? EarlyPairs{} : kEarly;

  __device__ __forceinline__ KeptScores(const AttentionArgs& args, const KeysDropout& dropout,
                                        unsigned shared, int warpgroup)
      : KeysConsumer(args, dropout, shared, warpgroup), shared_(shared) {}

  __device__ __forceinline__ static int warpgroup() {
    return __shfl_sync(~0u, reread_thread_index() / kWarpgroupThreads, 0) - 1;
  }

  // Rounds the kCount words of P in part `kPart` of the rows.
  template <int kPart, int kCount>
  __device__ __forceinline__ static void round(const Scores& s, unsigned (&p)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      p[i] = pack<kDtypeQ>(s[2 * (kPart * kCount + i)], s[2 * (kPart * kCount + i) + 1]);
  }

  // Writes dS^T of a part of a step's rows, as rows of 64 keys. No warp reads the slot at that
  // time. If blocks add in the order of keys, a warpgroup that writes step j has waited for the
  // other's dS of step j - 2, which the other writes after its dQ of step j - 4. If they add in no
  // order, the readers release slots (ds.cuh).
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
