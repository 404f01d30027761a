// SPDX-License-Identifier: Apache-2.0
// backward_sm90 with stored scores (knob store_ds): the kernel of dQ writes dS and P to the
// workspace, from where the kernels of dK and dV read them. Launched in rounds of some heads.
#pragma once

#include "cuda/backward_sm90/stored/rows_kernel.cuh"

#include "cuda/backward_sm90/stored/keys_kernel.cuh"
#include "cuda/backward_sm90/stored/values_kernel.cuh"  // where kGradientV == true
#include "cuda/parts/backward_prepare.cuh"
