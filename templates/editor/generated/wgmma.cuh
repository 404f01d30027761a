// SPDX-License-Identifier: Apache-2.0
// Declares the products of generated/wgmma.cuh for editors, with any operands. The renderer writes
// those of one kernel (generator/render/wgmma_emitter.hpp).
#pragma once

namespace attune {

#define ATTUNE_PRODUCT(name)   \
  template <class... Operands> \
  void name(Operands&&...)
// prefill_sm90, prefill_sm90_fp8, cache_sm90
ATTUNE_PRODUCT(wgmma_qk);
ATTUNE_PRODUCT(wgmma_pv);
// mla_sm90
ATTUNE_PRODUCT(mla_qk);
ATTUNE_PRODUCT(mla_qk_last);
ATTUNE_PRODUCT(mla_pv);
ATTUNE_PRODUCT(mla_own_pv);
ATTUNE_PRODUCT(mla_other_pv);
// backward_sm90
ATTUNE_PRODUCT(wgmma_q_k);
ATTUNE_PRODUCT(wgmma_dout_v);
ATTUNE_PRODUCT(wgmma_ds_k);
ATTUNE_PRODUCT(wgmma_k_q);
ATTUNE_PRODUCT(wgmma_v_dout);
ATTUNE_PRODUCT(wgmma_p_dout);
ATTUNE_PRODUCT(wgmma_ds_q);
ATTUNE_PRODUCT(wgmma_ds_keys);
ATTUNE_PRODUCT(wgmma_keys_ds);
ATTUNE_PRODUCT(wgmma_v_dout_half);
ATTUNE_PRODUCT(wgmma_p_dout_half);
ATTUNE_PRODUCT(wgmma_ds_q_half);
ATTUNE_PRODUCT(wgmma_stored_q);
ATTUNE_PRODUCT(wgmma_stored_dout);
#undef ATTUNE_PRODUCT

}  // namespace attune
