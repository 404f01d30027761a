// SPDX-License-Identifier: Apache-2.0
// This machine's CPU as LLVM names it. Part of the CPU plugin.
#pragma once

#include "generator/core/arch.hpp"

namespace attune {

Arch detect_host_arch();

}  // namespace attune
