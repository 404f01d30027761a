// SPDX-License-Identifier: Apache-2.0
// Gradients of attention with mma.sync m16n8k16, ldmatrix and cp.async, for sm_80 and later in bf16
// and fp16; for sm_75, without cp.async, in fp16. Accumulators are fp32; P and dS are rounded to 16
// bits. A launch runs only the kernels that its gradients need, up to four. With L2 = lse log2(e),
// c = softmax_scale log2(e), delta = rowsum(dout o) - dlse:
//   attune_prepare   L2 and delta of every row                       parts/backward_prepare.cuh
//   attune_kernel    dQ = scale dS K, by tiles of rows  backward_sm80/mma_gradient_rows.cuh
//   attune_keys      dK = scale dS^T Q, dV = P^T dout, by keys  backward_sm80/mma_gradient_keys.cuh
//   attune_values    dV, if split_kv makes it separately  backward_sm80/mma_gradient_values.cuh
// Each kernel recomputes P = exp2(c Q K^T - L2) and dS = P (dout V^T - delta). No sum crosses
// blocks, so the result is the same in each run. All kernels compute tiles with
// backward_sm80/mma_gradients.cuh. Shared memory: shared/layouts/backward_sm80_layout.h. Knobs: the
// constants that follow; legal values: generator/families/backward/backward_sm80.cpp. How it works:
// README.md.
#include "cuda/backward_sm80/backward_sm80_knobs.cuh"

#include "cuda/backward_sm80/mma_gradient_keys.cuh"    // where kHasKeys == true
#include "cuda/backward_sm80/mma_gradient_rows.cuh"    // where kGradientQ == true
#include "cuda/backward_sm80/mma_gradient_values.cuh"  // where kSplitKv == 1
#include "cuda/parts/backward_prepare.cuh"
