// SPDX-License-Identifier: Apache-2.0
// See launch.hpp.
#include "generator/families/prefill/sm90/launch.hpp"

#include <algorithm>

#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/layouts/prefill_sm90_splits.h"

namespace attune {

bool sm90_longest_first(const KernelSpec& spec) {
  return spec.mask != Mask::kNone || has_mask_program(spec);
}

Sm90Tiles sm90_tiles(const Config& config, const Shape& shape) {
  const int64_t packed = config.get("pack_heads", 1);
  const int64_t rows = config.at("block_m") / packed;
  const int64_t heads = std::min<int64_t>(packed, shape.num_heads_q / shape.num_heads_kv);
  const int64_t groups = shape.batch * shape.num_heads_q / heads * v_slices(config);
  return {rows, (shape.seqlen_q + rows - 1) / rows, groups};
}

LaunchStructure sm90_structure(const KernelSpec& spec, const Config& config) {
  const PrefillSm90Config c = sm90_layout_config(spec, config);
  const PrefillSm90Layout layout = prefill_sm90_layout(c);
  LaunchStructure all;
  all.steps[0].parts = attention_parts(spec);
  all.steps[0].threads = static_cast<unsigned>((layout.warpgroups + 1) * kWarpgroupThreads);
  all.steps[0].shared_bytes = static_cast<unsigned>(sm90_shared_bytes(spec, config));
  if (static_cast<Sm90Scheduler>(config.at("scheduler")) == Sm90Scheduler::kDynamic)
    all.workspace = {{.name = "tile_counter", .zeroed = true, .alignment = kTileCounterBytes}};
  const auto splits = static_cast<int>(config.at("kv_splits"));
  if (splits == 1) return all;
  all.steps[0].cluster = static_cast<unsigned>(split_cluster(splits));
  if (split_cluster(splits) < splits)
    all.workspace = {{.name = "split_tickets", .zeroed = true}, {.name = "split_slices"}};
  return all;
}

LaunchSizes sm90_sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                       const DeviceFacts& device) {
  const PrefillSm90Config c = sm90_layout_config(spec, config);
  const int warpgroups = prefill_sm90_layout(c).warpgroups;
  const auto splits = static_cast<int>(config.at("kv_splits"));
  const int cluster = split_cluster(splits);
  const int64_t whole_tiles = sm90_tiles(config, shape).count();
  const int tiles = tile_count(whole_tiles * splits);
  const auto scheduler = static_cast<Sm90Scheduler>(config.at("scheduler"));
  const int64_t resident = static_cast<int64_t>(device.sm_count) * c.blocks_per_sm;
  LaunchSizes sizes;
  sizes.steps[0].num_tiles = tiles;
  sizes.steps[0].grid_x = grid_extent(
      scheduler == Sm90Scheduler::kOneTile ? tiles : std::min<int64_t>(tiles, resident));
  if (scheduler == Sm90Scheduler::kDynamic) sizes.workspace = {{.columns = 1}};
  if (cluster < splits) {
    tile_count(whole_tiles * warpgroups * cluster);  // the kernel counts its tickets in an int
    sizes.workspace = {
        {.columns = split_ticket_bytes(static_cast<int>(whole_tiles), warpgroups, cluster) / 4},
        {.columns = split_slice_floats(c.head_dim_v, cluster), .rows = warpgroups, .heads = tiles}};
  }
  return sizes;
}

MapShape sm90_map_shape(const Config& config, const Shape& shape) {
  const Sm90Tiles tiles = sm90_tiles(config, shape);
  const int64_t slices_of_entries = v_slices(config) * std::max<int64_t>(shape.batch, 1);
  return {.row_blocks = tiles.row_blocks,
          .head_tiles = tiles.groups / slices_of_entries,  // slices of V share a list
          .block_n = config.at("block_n")};
}

}  // namespace attune
