// SPDX-License-Identifier: Apache-2.0
// Defines hide_scores() of an sm_90 kernel: by a mask program, or by a block map as the only mask.
#pragma once

#include "cuda/sm90/granule_stage.cuh"  // where kHidesByMap
#include "cuda/sm90/mask_stage.cuh"     // unless kHidesByMap
