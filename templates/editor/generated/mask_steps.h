// SPDX-License-Identifier: Apache-2.0
// Declares a mask program in steps of keys for editors: functions of a score program in a namespace
// of their own. The renderer writes those of one program (generator/score/print/source_text.hpp).
#pragma once

#include "generated/score_program.h"

namespace attune::mask_steps {
using namespace attune;
}
