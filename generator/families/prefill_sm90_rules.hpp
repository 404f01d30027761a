// SPDX-License-Identifier: Apache-2.0
// What prefill_sm90 and prefill_sm90_fp8 have in common: the rules of their configs, and the launch
// of the kernel that attends.
#pragma once

#include "generator/kernel_template.hpp"
#include "templates/shared/prefill_sm90_layout.h"

namespace attune {

PrefillSm90Config sm90_layout_config(const KernelSpec& spec, const Config& config);

// Registers that the accumulators of a consumer thread take.
using Sm90Accumulators = int (*)(const KernelSpec& spec, const Config& config);

// What makes sense, then what the machine can hold.
std::vector<Constraint> sm90_rules(const KernelSpec& spec, const Arch& arch,
                                   Sm90Accumulators accumulators);

Resources sm90_resources(const KernelSpec& spec, const Arch& arch, const Config& config);

// Splits of the keys that fill the device when there are few tiles; each keeps several steps.
Config sm90_with_splits(Config config, const SearchSpace& legal, const Shape& shape);

LaunchPlan sm90_launch(const KernelSpec& spec, const Config& config, const Shape& shape,
                       const DeviceFacts& device);

}  // namespace attune
