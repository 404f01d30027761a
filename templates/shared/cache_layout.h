// SPDX-License-Identifier: Apache-2.0
// The workspace of cache_sm90: host code sizes it, kernels find their parts in it.
//
// | knob scheduler | tensor                              | extents                                |
// |----------------|-------------------------------------|----------------------------------------|
// | drawn          | counter of tiles, zero between      | 1 int                                  |
// |                | calls                               |                                        |
// | shared         | tickets, zero between calls parts,  | [cache_tickets] int: request, row      |
// |                | fp32                                | tile, group of heads, warpgroup; then  |
// |                |                                     | of groups of parts: [2 *               |
// |                |                                     | blocks][warpgroups] [2 *               |
// |                |                                     | blocks][warpgroups][cache_part_floats] |
//
// A tile of many parts is joined twice: groups of them, each by the block that comes last to it,
// then what groups have come to, which stands in the place of their first parts.
#pragma once

#include "shared/decode_layout.h"
#include "shared/host_device.h"

namespace attune {

// Tiles of `tile_rows` rows, for `tile_heads` heads each.
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

// O of some rows, largest scores and sums of the part, and the same of the group that it is the
// first of.
ATTUNE_HOST_DEVICE constexpr long long cache_part_floats(int rows, int head_dim_v) {
  return static_cast<long long>(rows) * (head_dim_v + 4);
}

// Parts of a tile that are joined ahead of the others: all, where one block reads them as fast as
// two would after each other.
constexpr int kMostPartsAtOnce = 16;
ATTUNE_HOST_DEVICE constexpr int cache_join_group(int parts) {
  if (parts <= kMostPartsAtOnce) return parts;
  int group = 4;
  while (group * group < parts) ++group;
  return group;
}

}  // namespace attune
