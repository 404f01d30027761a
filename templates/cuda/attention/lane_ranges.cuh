// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a GPU. The lanes of a warp have the same rows, which they read together.
// Each lane has its own keys.
#pragma once

#include "cuda/attention/score_ranges.cuh"
#include "shared/capture_range.h"
