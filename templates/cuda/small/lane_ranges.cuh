// SPDX-License-Identifier: Apache-2.0
// Finds ranges of captures on a GPU if the lanes of a warp have the same rows, but each its own
// keys. The lanes read elements of rows together.
#pragma once

#include "cuda/parts/score_ranges.cuh"

#include "shared/capture_range.h"
