// SPDX-License-Identifier: Apache-2.0
// What a call's pointers, strides and workspace must be, in sentences. `run` asks for one when the
// rules of its plan (operand_rules.hpp) say no; the engine asks `tensor_map_refusal` when it chooses
// a template. Both walk the operands of the op (generator/core/op.hpp).
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

// Throws kInvalidArgument with a sentence that names the argument, what was given and what is
// accepted.
void check_operands(const OperandList& list, const Operands& operands);
void check_workspace(const Plan& plan, const void* workspace, int64_t workspace_bytes);
// Waits for the device and looks at the part that must be zero before a run.
void check_workspace_is_clean(const Plan& plan, const void* workspace);

// Why TMA cannot load this layout (a zero stride over more than one row, or 2^40 bytes and more),
// or nullopt.
std::optional<std::string> tensor_map_refusal(const OperandList& list, const Operands& operands);

}  // namespace attune
