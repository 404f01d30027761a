// SPDX-License-Identifier: Apache-2.0
// Checks a call's pointers, strides and workspace, and throws the fault as a message. `run` calls
// check_operands if the faster OperandRules of its plan (operand_rules.hpp) refuse the operands.
// The engine uses tensor_map_refusal to choose a template.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "generator/core/problem/op.hpp"
#include "runtime/operands/operand_rules.hpp"
#include "runtime/operands/operands.hpp"

namespace attune {

struct Plan;

inline constexpr int kWorkspaceAlignment = 256;  // bytes

// Both functions throw kInvalidArgument with the argument, the given value and the valid values.
void check_operands(const OperandList& list, const Operands& operands);
void check_workspace(const Plan& plan, const void* workspace, int64_t workspace_bytes);
// Waits for the device, then checks that the first LaunchPlan::zeroed_bytes of a workspace are
// zero.
void check_workspace_is_clean(const Plan& plan, const void* workspace);

// Returns the reason why TMA cannot load this layout, or nullopt. TMA needs strides above 0 and
// below 2^40 bytes in each dimension of extent 2 or more.
std::optional<std::string> tensor_map_refusal(const OperandList& list, const Operands& operands);

}  // namespace attune
