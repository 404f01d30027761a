// SPDX-License-Identifier: Apache-2.0
// backward_sm90 in two kernels: one makes dQ by tiles of rows, the other dK and dV by tiles of
// keys. If registers do not hold both dK and dV, a third kernel makes dV (knob split_kv).
#pragma once

#include "cuda/backward_sm90/two_kernels/keys_kernel.cuh"    // where kHasKeys == true
#include "cuda/backward_sm90/two_kernels/rows_kernel.cuh"    // where kGradientQ == true
#include "cuda/backward_sm90/two_kernels/values_kernel.cuh"  // where kSplitKv == 1
#include "cuda/parts/backward_prepare.cuh"                   // where kFoldSums == 0
