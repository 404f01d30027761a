// SPDX-License-Identifier: Apache-2.0
// append_kv_cpu: op append_kv on every CPU. Kernel: templates/cpu/append_kv.cpp.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& append_kv_cpu();

}  // namespace attune
