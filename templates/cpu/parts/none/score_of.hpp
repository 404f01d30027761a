// SPDX-License-Identifier: Apache-2.0
// Kernels without a score program.
#pragma once

#include "shared/none/score_of.h"
