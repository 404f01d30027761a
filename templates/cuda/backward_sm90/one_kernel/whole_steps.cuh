// SPDX-License-Identifier: Apache-2.0
// Makes the gradients of a step for all its rows at once. unordered_consumer.cuh derives from it,
// too, but issues the products itself.
#pragma once

#include "cuda/backward_sm90/one_kernel/half_dq.cuh"

namespace attune {

class WholeSteps : public HalfDq {
 protected:
  using Rounded = unsigned[kKeyBlockM / 4];
  using HalfDq::HalfDq;

  __device__ __forceinline__ static void issue_dk(const Rounded& ds, const RingSlot& q, Dk& dk) {
    wgmma_ds_q(dk, ds, by_columns<kKeyBlockM>(q.tile), 1);
    wgmma_commit();
  }

  __device__ __forceinline__ void make_gradients(unsigned delta_at, const RingSlot& q,
                                                 const RingSlot& dout, const Scores& s, Dk& dk,
                                                 Dv& dv) {
    Scores dp;
    Rounded p, ds;
    round<0>(s, p);
    wgmma_fence();
    issue_dp(dout, dp);
    issue_dv(p, dout, dv);
    StepStatistics<kEarlyHere.delta_beside_p> delta(delta_at);
    wgmma_wait<1>();
    wgmma_pin(dp);
    differentiate(delta, s, dp, ds);
    keep<0>(ds);
    tell_kept();
    wgmma_fence();
    issue_dk(ds, q, dk);
    wgmma_wait<1>();
    wgmma_pin(dv);
    give_back(dout);
    wgmma_wait<0>();
    wgmma_pin(dk);
  }
};

}  // namespace attune
