// SPDX-License-Identifier: Apache-2.0
// Configs of backward_sm90 for tests.
#pragma once

#include "generator/families/families.hpp"
#include "tests/templates/prefill/hopper_cases.hpp"

namespace attune::testing {

// One kernel computes all gradients and adds to dq in the order of keys.
inline constexpr const char* kOneKernel =
    "block_m=128,block_n=48,k_slots=2,v_slots=1,key_block_n=128,key_block_m=64,q_slots=2,"
    "dout_slots=2,split_kv=0,fold_sums=0,fuse_dq=16,draw_tiles=0,store_ds=0,band=0,ordered=1";

// The kernels of dK and dV read scores that the kernel of dQ stored in the workspace.
inline constexpr const char* kStored =
    "block_m=128,block_n=48,k_slots=2,v_slots=1,key_block_n=128,key_block_m=64,q_slots=2,"
    "dout_slots=1,split_kv=0,fold_sums=0,fuse_dq=0,draw_tiles=0,store_ds=1,band=0,ordered=1";

// One kernel walks along a narrow band.
inline constexpr const char* kBand =
    "block_m=128,block_n=48,k_slots=2,v_slots=1,key_block_n=128,key_block_m=64,q_slots=2,"
    "dout_slots=1,split_kv=0,fold_sums=1,fuse_dq=0,draw_tiles=0,store_ds=0,band=1,ordered=1";

inline Config default_of(const Problem& p) {
  return backward_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
}

}  // namespace attune::testing
