// SPDX-License-Identifier: Apache-2.0
// Gradients of attention for sm_90a with TMA and wgmma, for operands in bf16 or fp16 with fp32
// accumulation. With L2 = lse log2(e), c = softmax_scale log2(e), delta = rowsum(dout o) - dlse:
//   P = exp2(c Q K^T - L2),  dS = P (dout V^T - delta)
//   dV = P^T dout,  dK = scale dS^T Q,  dQ = scale dS K
// A launch runs only the kernels that its gradients need. There are four algorithms:
//
//   two_kernels/  attune_kernel  dQ by tiles of rows
//                 attune_keys    dK and dV by tiles of keys
//                 attune_values  dV, if split_kv makes it separately
//   one_kernel/   attune_kernel  dK and dV by tiles of keys; adds dQ to fp32 sums
//     (fuse_dq)   attune_round   dQ, scaled and rounded
//   stored/       attune_kernel  dQ by tiles of rows; stores dS and P
//     (store_ds)  attune_keys    dK from dS
//                 attune_values  dV from P
//   band/         attune_kernel  all gradients of a narrow band
//     (band)
//
// Before the others, attune_prepare writes L2 and delta of every row to the workspace, unless
// attune_kernel makes them itself (fold_sums, band). The result is the same in each run, unless dQ
// is added in no fixed order (knob ordered). Layout of shared memory:
// shared/layouts/backward_sm90_layout.h. How it works: README.md.
#include "cuda/backward_sm90/backward_sm90_knobs.cuh"

#include "cuda/backward_sm90/band/kernel.cuh"        // where kBand == 1
#include "cuda/backward_sm90/one_kernel/entry.cuh"   // where kFuseDq > 0
#include "cuda/backward_sm90/stored/entry.cuh"       // where kStoreDs == 1
#include "cuda/backward_sm90/two_kernels/entry.cuh"  // where kTwoKernels
