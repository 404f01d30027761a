// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a GPU where the lanes of a warp have the same rows, which they read
// together, and each its own keys.
#pragma once

#include "cuda/attention/score_ranges.cuh"
#include "shared/capture_range.h"
