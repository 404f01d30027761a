// SPDX-License-Identifier: Apache-2.0
// Gradients of attention for sm_90a with TMA and wgmma, for operands in bf16 or fp16 with fp32
// accumulation. A launch runs only the kernels that its gradients need, up to four. With L2 = lse
// log2(e), c = softmax_scale log2(e), delta = rowsum(dout o) - dlse:
//   attune_prepare   L2 and delta of every row, unless fold_sums  parts/backward_prepare.cuh
//   attune_kernel    dQ = scale dS K, by tiles of rows            backward_rows.cuh
//   attune_keys      dK = scale dS^T Q, dV = P^T dout, by keys    backward_keys.cuh
//   attune_values    dV, if split_kv makes it separately          backward_values.cuh
// Each kernel recomputes P = exp2(c Q K^T - L2) and dS = P (dout V^T - delta). With store_ds,
// attune_keys and attune_values instead read dS and P, which attune_kernel has stored
// (backward_stored.cuh). With fuse_dq, one kernel computes all gradients by tiles of keys:
//   attune_kernel    dK, dV, and dQ in fp32, added in the order of keys or in any order
//                                                                 backward_fused_kernel.cuh
//   attune_round     dQ, scaled and rounded                       backward_round.cuh
// With band, one kernel computes all gradients of a narrow band (backward_band_kernel.cuh). The
// result is the same in each run, unless dQ is added in any order (knob ordered). Layout of shared
// memory: shared/layouts/backward_sm90_layout.h. How it works: README.md.
#include "cuda/backward_sm90/backward_sm90_knobs.cuh"

#include "cuda/backward_sm90/backward_band_kernel.cuh"    // where kBand == 1
#include "cuda/backward_sm90/backward_fused_kernel.cuh"   // where kFused
#include "cuda/backward_sm90/backward_keys_entry.cuh"     // where kHasKeysKernel == true
#include "cuda/backward_sm90/backward_round.cuh"          // where kFused
#include "cuda/backward_sm90/backward_rows.cuh"           // where kHasRows == true
#include "cuda/backward_sm90/backward_stored.cuh"         // where kStoresDs
#include "cuda/backward_sm90/backward_stored_values.cuh"  // where kStoresP
#include "cuda/backward_sm90/backward_values.cuh"         // where kSplitKv == 1
#include "cuda/parts/backward_prepare.cuh"                // where kFoldSums == 0
