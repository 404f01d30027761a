// SPDX-License-Identifier: Apache-2.0
// The stages that change the scores and weights of a panel: dropout, masks and score functions.
#pragma once

#include "cpu/parts/dropout_panels.hpp"  // where kDropout, else none/
#include "cpu/parts/mask_stage.hpp"      // where kMaskProgram, else none/
#include "cpu/parts/score_stage.hpp"     // where kScored, else none/
