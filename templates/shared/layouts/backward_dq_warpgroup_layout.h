// SPDX-License-Identifier: Apache-2.0
// The separate warpgroup for dQ in backward_sm90_one_kernel: for which tiles it exists, its
// registers, and the shared memory that follows backward_one_kernel_layout():
//
// | region   | bytes            | written by           | read by             |
// |----------|------------------|----------------------|---------------------|
// | ds empty | one barrier/slot | the warpgroup of dQ  | warpgroups of keys  |
#pragma once

#include "shared/layouts/backward_sm90_layout.h"

namespace attune {

// True if the warpgroups of keys have enough registers for the gradients and all of P and dP of a
// step.
constexpr bool backward_has_dq_warpgroup(int step_rows, int head_dim_qk, int head_dim_v) {
  return step_rows == kWarpgroupRows && head_dim_qk <= kPanelColumns && head_dim_v <= kPanelColumns;
}

// Registers per thread: at launch, then in the two warpgroups of keys, the warpgroup of dQ, and the
// producer.
struct DqWarpgroupRegisters {
  int launch, keys, dq, producer;
};
constexpr DqWarpgroupRegisters kDqWarpgroupRegisters{128, 192, 96, 24};

constexpr int backward_dq_warpgroup_ds_empty(const BackwardOneKernelLayout& l) { return l.bytes; }
constexpr int backward_dq_warpgroup_bytes(const BackwardOneKernelLayout& l, int ds_slots) {
  return l.bytes + 8 * ds_slots;
}

}  // namespace attune
