// SPDX-License-Identifier: Apache-2.0
// Blocks of keys that take a part of the heads of Q of a group (knob split_heads of two_kernels.cpp
// and one_kernel.cpp). Few heads of K give few blocks, and blocks under a causal mask differ in
// length. Parts give more and shorter blocks. Each leaves fp32 sums of dK and dV in the workspace,
// which a last step adds. Layout: templates/shared/layouts/backward_head_parts.h.
#pragma once

#include <vector>

#include "generator/families/backward/sm90/gradient_kernel.hpp"

namespace attune {

// Adds the knob split_heads, if the spec has groups of heads and makes dK or dV.
void add_head_knob(const KernelSpec& spec, std::vector<Knob>* knobs);
bool splits_heads(const Config& config);
// Adds the constant kHeadParts, if blocks take parts.
void add_head_constant(const Config& config, std::vector<Constant>* constants);

struct HeadSplit {
  int parts = 1;     // of each group
  double share = 1;  // predicted clocks, over the clocks of the kernel that takes whole groups
};
// Returns the number of parts with which the last multiprocessor is predicted to end first. It does
// not depend on head dims, so all kernels of keys of a launch have the same parts. Kernels that
// take whole groups have one.
HeadSplit head_split(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                     const DeviceFacts& device);

// Returns the columns of the gradients of keys.
int keys_columns(const KernelSpec& spec);

// Add the last step and its workspace tensor, and their sizes, if blocks take parts. `keys`: a
// kernel of keys of the launch.
void add_join(const Config& config, LaunchStructure* structure);
void add_join(const BackwardKernel& keys, const KernelSpec& spec, const Shape& shape,
              const DeviceFacts& device, LaunchSizes* sizes);

}  // namespace attune
