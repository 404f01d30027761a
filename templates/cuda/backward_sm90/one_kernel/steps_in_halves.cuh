// SPDX-License-Identifier: Apache-2.0
// Makes the gradients of a step for half of its rows at a time. For all rows, P, dP and rounded P
// do not fit in registers.
#pragma once

#include "cuda/backward_sm90/one_kernel/half_dq.cuh"

namespace attune {

class StepsInHalves : public HalfDq {
  using Half = float[kKeyBlockM / 4];  // for half of a step's rows
  using RoundedHalf = unsigned[kKeyBlockM / 8];

 protected:
  using HalfDq::HalfDq;

  __device__ __forceinline__ void make_gradients(unsigned delta_at, const RingSlot& q,
                                                 const RingSlot& dout, const Scores& s, Dk& dk,
                                                 Dv& dv) {
    constexpr int kNext = kKeyBlockM / 2 * kPanelRowBytes;
    RoundedHalf ds;
    {
      Half dp;
      RoundedHalf p;
      round<0>(s, p);
      wgmma_fence();
      issue_half(p, dout.tile, dp, dv);
      wgmma_wait<1>();
      wgmma_pin(dp);
      StepStatistics<0> delta(delta_at);
      differentiate<0>(delta, s, dp, ds);
      keep<0>(ds);
    }
    Half dp;
    RoundedHalf p, ds_next;
    round<1>(s, p);
    wgmma_fence();
    wgmma_v_dout_half(dp, v_, by_rows(dout.tile + kNext));
    wgmma_commit();
    wgmma_ds_q_half(dk, ds, by_columns<kKeyBlockM>(q.tile), 1);
    wgmma_p_dout_half(dv, p, by_columns<kKeyBlockM>(dout.tile + kNext), 1);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(dp);
    StepStatistics<0> delta(delta_at);
    differentiate<kKeyBlockM / 4>(delta, s, dp, ds_next);
    keep<1>(ds_next);
    tell_kept();
    wgmma_wait<0>();
    wgmma_pin(dv);
    wgmma_pin(dk);
    give_back(dout);
    wgmma_fence();
    wgmma_ds_q_half(dk, ds_next, by_columns<kKeyBlockM>(q.tile + kNext), 1);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(dk);
  }

 private:
  __device__ __forceinline__ void issue_half(const RoundedHalf& p, unsigned dout, Half& dp,
                                             Dv& dv) {
    wgmma_v_dout_half(dp, v_, by_rows(dout));
    wgmma_commit();
    wgmma_p_dout_half(dv, p, by_columns<kKeyBlockM>(dout), 1);
    wgmma_commit();
  }
};

}  // namespace attune
