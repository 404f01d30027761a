// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a CPU.
#pragma once

#include "cpu/score_functions.hpp"
#include "shared/capture_range.h"
