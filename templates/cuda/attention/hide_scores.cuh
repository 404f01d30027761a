// SPDX-License-Identifier: Apache-2.0
// hide_scores() of an sm_90 kernel: by a mask program, or by a map of blocks that is the only mask.
#pragma once

#include "cuda/attention/granule_stage.cuh"  // where kHidesByMap
#include "cuda/attention/mask_stage.cuh"     // unless kHidesByMap
