// SPDX-License-Identifier: Apache-2.0
// Runs a kernel on one AttentionCase and applies the rules of attention_verdict.cpp.
#pragma once

#include <functional>
#include <string>

#include "tuner/fuzz/device_run.hpp"

namespace attune::testing {

// Returns the arithmetic of a template on a device of this kind.
Arithmetic arithmetic_of(const KernelTemplate& kernel_template, Target target);

using Redraw = std::function<AttentionCase(uint64_t seed)>;  // the same case with other numbers

// Returns the fault of a run: a wrong result, a write outside o, or two runs that differ. Empty if
// there is none.
std::string fault_of(const LoadedConfig& loaded, const AttentionCase& test_case,
                     Arithmetic arithmetic, const Redraw& redraw);

}  // namespace attune::testing
