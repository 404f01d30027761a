// SPDX-License-Identifier: Apache-2.0
// The workspace of cache_sm90. Host code computes its size, and kernels the offsets of its parts.
//
// | knob scheduler | tensor                              | extents                                |
// |----------------|-------------------------------------|----------------------------------------|
// | drawn          | counter of tiles, zero between      | 1 int                                  |
// |                | calls                               |                                        |
// | shared         | tickets, zero between calls         | [cache_tickets] int: one per request,  |
// |                |                                     | row tile, group of heads and           |
// |                |                                     | warpgroup; then [2 *                   |
// |                |                                     | blocks][warpgroups] int for groups of  |
// |                |                                     | parts                                  |
// |                | parts, fp32                         | [2 *                                   |
// |                |                                     | blocks][warpgroups][cache_part_floats] |
//
// A tile of many parts is joined in two stages. First the last block to arrive at a group of parts
// joins that group, into the place of the group's first part. Then the joined groups are joined.
#pragma once

#include "shared/host_device.h"
#include "shared/layouts/decode_layout.h"

namespace attune {

// Returns the number of tickets: one per warpgroup of each tile of `tile_rows` rows and
// `tile_heads` heads.
ATTUNE_HOST_DEVICE constexpr int cache_tickets(int batch, int seqlen_q, int num_heads_q,
                                               int tile_rows, int tile_heads, int warpgroups) {
  const int tiles = (seqlen_q + tile_rows - 1) / tile_rows;
  return batch * tiles * (num_heads_q / tile_heads) * warpgroups;
}
// Returns the number of tickets of groups of parts. A group's ticket has the place of its first
// part.
ATTUNE_HOST_DEVICE constexpr int cache_group_tickets(int blocks, int warpgroups) {
  return 2 * blocks * warpgroups;
}

// Returns the floats of a part: O of `rows` rows, their largest scores and sums, and the largest
// scores and sums of the group whose first part it is.
ATTUNE_HOST_DEVICE constexpr long long cache_part_floats(int rows, int head_dim_v) {
  return static_cast<long long>(rows) * (head_dim_v + 4);
}

// The most parts that are joined in one stage: up to this many, one block reads all parts as fast
// as two stages would.
constexpr int kMostPartsAtOnce = 16;
ATTUNE_HOST_DEVICE constexpr int cache_join_group(int parts) {
  if (parts <= kMostPartsAtOnce) return parts;
  int group = 4;
  while (group * group < parts) ++group;
  return group;
}

}  // namespace attune
