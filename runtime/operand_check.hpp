// SPDX-License-Identifier: Apache-2.0
// Checks a call's pointers, strides and workspace, and says what is wrong. `run` uses it if the
// rules of its plan (operand_rules.hpp) say no; the engine uses `tensor_map_refusal` to choose a
// template. Both walk the operands of the op (generator/core/op.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "generator/core/op.hpp"
#include "runtime/operand_rules.hpp"
#include "runtime/operands.hpp"

namespace attune {

struct Plan;

inline constexpr int kWorkspaceAlignment = 256;  // bytes

// Throws kInvalidArgument with a sentence that names the argument, the given value and what it must
// be.
void check_operands(const OperandList& list, const Operands& operands);
void check_workspace(const Plan& plan, const void* workspace, int64_t workspace_bytes);
// Waits for the device and checks the part that must be zero before a run.
void check_workspace_is_clean(const Plan& plan, const void* workspace);

// Returns the reason why TMA cannot load this layout, or nullopt: a zero stride over more than one
// row, or a stride of at least 2^40 bytes.
std::optional<std::string> tensor_map_refusal(const OperandList& list, const Operands& operands);

}  // namespace attune
