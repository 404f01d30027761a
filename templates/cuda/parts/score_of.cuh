// SPDX-License-Identifier: Apache-2.0
// score_of for the GPU: the whole score program for one element (shared/score_of.h).
#pragma once

#include "cuda/parts/score_functions.cuh"

#include "shared/score_of.h"
