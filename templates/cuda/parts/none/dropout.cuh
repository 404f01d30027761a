// SPDX-License-Identifier: Apache-2.0
// The former name of dropout_source.cuh in this folder, for backward_sm90.
#pragma once

#include "cuda/parts/none/dropout_source.cuh"
