// SPDX-License-Identifier: Apache-2.0
// The family decode_cpu: op attention_kvcache on CPUs (templates/cpu/decode_cpu.cpp).
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& decode_cpu();

}  // namespace attune
