// SPDX-License-Identifier: Apache-2.0
// A kernel whose keys are converted by the warps that gather them.
#pragma once

#include "cuda/mla_sm90/converted_keys.cuh"  // where kRows == 64, else staged_keys.cuh
