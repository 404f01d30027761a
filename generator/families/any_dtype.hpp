// SPDX-License-Identifier: Apache-2.0
// Shared by three templates that serve fp32, bf16, fp16 and 8 bits from one source each: both
// references and prefill_cpu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

// Returns why these templates do not serve the dtypes, as a sentence; nullopt if they do.
std::optional<std::string> any_dtype_refusal(const KernelSpec& spec);

// Returns values for kVLayout, kScaleBlockQ and kScaleBlockKv, which these templates use for every
// dtype. The renderer itself writes them only for a spec with 8-bit operands; for such a spec this
// returns none.
std::vector<Constant> constants_without_8_bits(const KernelSpec& spec);

}  // namespace attune
