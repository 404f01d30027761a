// SPDX-License-Identifier: Apache-2.0
// Workspace of sm_90 kernels that share the keys of a tile among several blocks; see
// cuda/attention/kv_split.cuh. The host sizes it, the kernel finds its parts in it.
//
// | tensor                                                   | bytes                             |
// |----------------------------------------------------------|-----------------------------------|
// | tickets [tile][warpgroup] int, zero between launches     | tiles * warpgroups * 4, up to the |
// |                                                          | next multiple of 256              |
// | parts [tile][split][warpgroup][split_part_floats] fp32   | each split_part_floats * 4        |
#pragma once

#include "shared/host_device.h"
#include "shared/prefill_sm90_layout.h"

namespace attune {

// Registers of O, and two row maxima and sums, of each thread of a warpgroup.
constexpr int split_part_registers(int head_dim_v) { return head_dim_v / 2 + 4; }
constexpr int split_part_floats(int head_dim_v) {
  return split_part_registers(head_dim_v) * kWarpgroupThreads;
}

// The one of these that kernels call, with a number of tiles that is known at launch alone.
ATTUNE_HOST_DEVICE constexpr long long split_ticket_bytes(int tiles, int warpgroups) {
  return (tiles * warpgroups * 4ll + 255) / 256 * 256;
}

}  // namespace attune
