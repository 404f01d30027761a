// SPDX-License-Identifier: Apache-2.0
// What three templates share that serve fp32, bf16, fp16 and 8 bits, each from one source: both
// references and prefill_cpu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

// Why they do not serve the dtypes, as a sentence.
std::optional<std::string> any_dtype_refusal(const KernelSpec& spec);

// The constants that the renderer writes for 8-bit operands only, for a spec that has none.
std::vector<Constant> constants_without_8_bits(const KernelSpec& spec);

}  // namespace attune
