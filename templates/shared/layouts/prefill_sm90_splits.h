// SPDX-License-Identifier: Apache-2.0
// How sm_90 kernels share the keys of a tile among several blocks; see cuda/sm90/kv_split.cuh. Host
// code computes the sizes, and the kernel the offsets. All counts are of one tile.
//
// Blocks of a tile form clusters. Each block leaves its part of O in its own shared memory, where
// Q, K and V were, and joins one slice of columns of all parts of the cluster:
//
// | region of shared memory                             | bytes                               |
// |-----------------------------------------------------|-------------------------------------|
// | parts [warpgroup][split_part_floats(head_dim)] fp32 | warpgroups * split_part_floats * 4  |
//
// With more splits than 8, several clusters of a tile join their slices through the workspace:
//
// | tensor                                              | bytes                               |
// |-----------------------------------------------------|-------------------------------------|
// | tickets [tile][warpgroup][rank in the cluster] int, | tiles * warpgroups * cluster * 4,   |
// | zero between launches                               | up to the next multiple of 256      |
// | slices [tile][split][warpgroup][split_slice_floats] | each split_slice_floats * 4         |
#pragma once

#include "shared/host_device.h"
#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

// Returns the blocks of a cluster. Up to 8 splits are one cluster. 12 and 16 are clusters of 2, of
// which a device holds the most blocks; with more splits there are few tiles, so 8 blocks fit.
constexpr int split_cluster(int kv_splits) {
  if (kv_splits <= 8) return kv_splits;
  return kv_splits <= 16 ? 2 : 8;
}

// Returns the floats of a warpgroup's part: O, two row maxima and two row sums of each thread.
constexpr int split_part_floats(int head_dim_v) { return (head_dim_v / 2 + 4) * kWarpgroupThreads; }

// Returns the chunks of 8 columns that a block joins. The last blocks may have fewer.
constexpr int split_slice_chunks(int head_dim_v, int cluster) {
  return (head_dim_v / 8 + cluster - 1) / cluster;
}
constexpr int split_slice_floats(int head_dim_v, int cluster) {
  return (4 * split_slice_chunks(head_dim_v, cluster) + 4) * kWarpgroupThreads;
}

ATTUNE_HOST_DEVICE constexpr long long split_ticket_bytes(int tiles, int warpgroups, int cluster) {
  return (static_cast<long long>(tiles) * warpgroups * cluster * 4 + 255) / 256 * 256;
}

}  // namespace attune
