// SPDX-License-Identifier: Apache-2.0
// Workspace of sm_90 kernels that share the keys of a tile among several blocks; see
// cuda/sm90/kv_split.cuh. Host code computes its size, and the kernel the offsets of its
// parts.
//
// | tensor                                                   | bytes                             |
// |----------------------------------------------------------|-----------------------------------|
// | tickets [tile][warpgroup] int, zero between launches     | tiles * warpgroups * 4, up to the |
// |                                                          | next multiple of 256              |
// | parts [tile][split][warpgroup][split_part_floats] fp32   | each split_part_floats * 4        |
#pragma once

#include "shared/host_device.h"
#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

// Returns the registers per thread of a part: O, two row maxima and two row sums.
constexpr int split_part_registers(int head_dim_v) { return head_dim_v / 2 + 4; }
constexpr int split_part_floats(int head_dim_v) {
  return split_part_registers(head_dim_v) * kWarpgroupThreads;
}

// Returns the bytes of the tickets. Kernels call only this function of the file, because the number
// of tiles is known only at launch.
ATTUNE_HOST_DEVICE constexpr long long split_ticket_bytes(int tiles, int warpgroups) {
  return (tiles * warpgroups * 4ll + 255) / 256 * 256;
}

}  // namespace attune
