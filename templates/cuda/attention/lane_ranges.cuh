// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a GPU where each lane has a range of its own and reads its elements alone; score_ranges.cuh has those of warps.
#pragma once

#include "cuda/attention/score_functions.cuh"
#include "shared/capture_range.h"
