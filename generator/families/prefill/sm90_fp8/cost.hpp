// SPDX-License-Identifier: Apache-2.0
// Estimates the run time of a prefill_sm90_fp8 launch, to rank configs before any is compiled. The
// model is explained in templates/cuda/prefill_sm90_fp8/README.md.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

double sm90_fp8_predicted_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                                 const DeviceFacts& device);

}  // namespace attune
