// SPDX-License-Identifier: Apache-2.0
// The stages that change P and dS of an mma.sync backward kernel between its products: masks,
// score functions and dropout.
#pragma once

#include "cuda/mma/mma_gradient_dropout.cuh"  // where kDropout, else none/
#include "cuda/mma/mma_gradient_masks.cuh"    // where kMaskProgram, else none/
#include "cuda/mma/mma_gradient_scores.cuh"   // where kScored, else none/
