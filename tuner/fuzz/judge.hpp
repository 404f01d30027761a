// SPDX-License-Identifier: Apache-2.0
// Holds a kernel's run of one AttentionCase against the rules of attention_verdict.cpp.
#pragma once

#include <functional>
#include <string>

#include "tuner/fuzz/device_run.hpp"

namespace attune::testing {

// Of a template on a device of this kind.
Arithmetic arithmetic_of(const KernelTemplate& kernel_template, Target target);

using Redraw = std::function<AttentionCase(uint64_t seed)>;  // the same case with other numbers

// Empty where the kernel gives what it must, writes nothing else and gives the same bytes twice; else what is broken.
std::string fault_of(const LoadedConfig& loaded, const AttentionCase& test_case,
                     Arithmetic arithmetic, const Redraw& redraw);

}  // namespace attune::testing
