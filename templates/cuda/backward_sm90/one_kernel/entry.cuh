// SPDX-License-Identifier: Apache-2.0
// backward_sm90 in one kernel (knob fuse_dq): it makes dK and dV by tiles of keys, and adds dQ to
// fp32 sums in the workspace, which the last step scales and rounds.
#pragma once

#include "cuda/backward_sm90/one_kernel/kernel.cuh"
#include "cuda/backward_sm90/one_kernel/round.cuh"
#include "cuda/parts/backward_prepare.cuh"
