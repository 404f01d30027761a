// SPDX-License-Identifier: Apache-2.0
// The workspace of cache_sm90: host code sizes it, kernels find their parts in it.
//
// | knob scheduler | tensor                                | extents                                                              |
// |----------------|---------------------------------------|----------------------------------------------------------------------|
// | drawn          | counter of tiles, zero between calls  | 1 int                                                                |
// | shared         | tickets, zero between calls           | [cache_tickets] int: request, row tile, group of heads, warpgroup    |
// |                | parts, fp32                           | [2 * blocks][warpgroups][decode_part_floats of 64 rows]              |
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

}  // namespace attune
