// SPDX-License-Identifier: Apache-2.0
// score_of for the CPU: the whole score program for one element (shared/score_of.h).
#pragma once

#include "cpu/parts/score_functions.hpp"

#include "shared/score_of.h"
