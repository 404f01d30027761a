// SPDX-License-Identifier: Apache-2.0
// See cost.hpp. The cost model multiplies step_clocks(), from the busiest units, with
// variant_penalty(), for choices that matter little. steps_of_tile() then counts the steps of a
// tile from the mask, and makespan() spreads tiles over multiprocessors. sm90_fastest() at the end
// chooses among candidates.
#include "generator/families/prefill/sm90/cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/layouts/prefill_sm90_splits.h"

namespace attune {
namespace {

// Per multiprocessor and clock (sm_90).
constexpr double kMmaFlops = 4096;  // dense 16-bit
constexpr double kExponentials = 16;
constexpr double kSharedBytes = 128;
constexpr double kL2Bytes = 30;
// first product, last product and epilogue, which nothing overlaps
constexpr double kTileClocks = 1400;
constexpr double kLaunchClocks = 1500;  // start of a block
// Joining splits (fitted on an H200): a cluster and each block of it, bytes between its blocks, and
// tickets of several clusters.
constexpr double kClusterClocks = 2000;
constexpr double kClusterBlockClocks = 800;
constexpr double kClusterBytes = 40;
constexpr double kTicketClocks = 2500;

struct Tile {
  int block_m, block_n, warpgroups, ctas, splits, kv_slots, parts;
  bool overlap, ping_pong, ring, staged, wide;
  Sm90Scheduler scheduler;
};

Tile tile_of(const KernelSpec& spec, const Config& c) {
  Tile t{};
  t.wide = has_wide_heads(spec);
  t.block_m = static_cast<int>(c.at("block_m"));
  t.block_n = static_cast<int>(c.at("block_n"));
  t.warpgroups = t.block_m / kWarpgroupRows;
  t.ctas = static_cast<int>(c.at("blocks_per_sm"));
  t.splits = static_cast<int>(c.at("kv_splits"));
  t.kv_slots = static_cast<int>(c.at("kv_slots"));
  t.parts = static_cast<int>(c.get("k_parts", 1));
  t.overlap = c.at("overlap") != 0;
  t.ping_pong = c.at("ping_pong") != 0;
  t.ring = c.at("kv_ring") != 0;
  t.staged = c.at("o_staging") != 0;
  t.scheduler = static_cast<Sm90Scheduler>(c.at("scheduler"));
  return t;
}

// Returns the factor by which Q K^T slows down. It reads both operands from shared memory, and with
// few keys per step it reads Q too often. Only wide heads have such short steps, because their rows
// fill the memory.
double qk_slowdown(const Tile& t) {
  if (!t.wide) return 1;
  const double product = t.block_n / 2.0;  // clocks of 64 rows and 32 bytes of k
  const double bytes = (kWarpgroupRows + t.block_n) * 32.0;
  return std::max(1.0, bytes / kSharedBytes / product);
}

// Returns the clocks of a step of wide heads: its K and V come from L2. With one slot they arrive
// only after the previous step has released the slot, or a part of it.
double wide_step(const KernelSpec& spec, const Tile& t, double clocks) {
  const double bytes = 2.0 * t.block_n * (spec.head_dim_qk + spec.head_dim_v);
  const double load = bytes / kL2Bytes;
  if (t.kv_slots > 1) return std::max(clocks, load);
  return clocks + (t.parts == 1 ? 0.4 : 0.2) * load;
}

// Returns the clocks of one block_m x block_n step with one block per multiprocessor. `crowded`: as
// many blocks run as the device holds.
double step_clocks(const KernelSpec& spec, const Tile& t, bool crowded) {
  const double elements = static_cast<double>(t.block_m) * t.block_n;
  const double mma =
      elements * 2 * (qk_slowdown(t) * spec.head_dim_qk + spec.head_dim_v) / kMmaFlops;
  const double exponentials = elements / kExponentials;
  double clocks = std::pow(std::pow(mma, kOverlapPower) + std::pow(exponentials, kOverlapPower),
                           1 / kOverlapPower);
  const int resident = t.warpgroups * t.ctas;  // warpgroups that hide each other's latency
  if (resident == 1) clocks *= 1.6;
  if (resident == 2) clocks *= spec.head_dim_v <= 64 ? 1.2 : 1.02;
  if (resident == 3 && t.ctas > 1) clocks *= 1.1;
  // K and V come from L2 twice as often
  if (t.block_m == 64 && spec.head_dim_v > 64 && crowded) clocks *= 1.2;
  const bool window = spec.window_left >= 0;
  if (t.block_m == 64 && spec.head_dim_v <= 64 && window) clocks *= 1.1;  // likewise
  if (!t.overlap) clocks *= resident <= 3 ? 1.22 : 1.0;
  clocks *= 1 + 6.0 / t.block_n;  // barriers and bookkeeping of a step
  if (t.warpgroups >= 3 && spec.head_dim_v <= 64) clocks *= 0.97;
  const bool between = spec.head_dim_v > 64 && spec.head_dim_v % 128 != 0;
  if (t.warpgroups == 3 && between) clocks *= 0.94;  // for d80, d96, d112 and d160
  return t.wide ? wide_step(spec, t, clocks) : clocks;
}

// Returns the clocks in which the blocks of a tile join their results.
double join_clocks(const KernelSpec& spec, const Tile& t) {
  if (t.splits == 1) return 0;
  const double part_bytes = 4.0 * t.block_m * spec.head_dim_v;
  const int cluster = split_cluster(t.splits), clusters = t.splits / cluster;
  const double tickets =
      clusters == 1 ? 0 : kTicketClocks + clusters * part_bytes / cluster / kL2Bytes;
  return kClusterClocks + kClusterBlockClocks * cluster + 2 * part_bytes / kClusterBytes + tickets;
}

// True if all tiles run at once, each in a separate block, so that no order must be chosen.
bool is_one_wave(const Config& config, const Tile& t, const Shape& shape,
                 const DeviceFacts& device) {
  return t.splits == 1 &&
         sm90_tiles(config, shape).count() <= static_cast<int64_t>(device.sm_count) * t.ctas;
}

// Returns a factor for choices that matter little compared with the tile. Choices that usually lose
// cost a few percent more than measured, so that the first candidates are different tiles. A search
// of neighbours finds the exceptions.
double variant_penalty(const KernelSpec& spec, const Shape& shape, const Config& c, const Tile& t,
                       const DeviceFacts& device) {
  const bool masked = spec.mask != Mask::kNone;
  const bool narrow = spec.head_dim_v <= 64;
  const bool wide = spec.head_dim_v > 128;
  double factor = 1;
  if (c.at("pack_heads") > 1) factor *= 1.01;
  // At head dim 128 the model ranks short steps under a mask too high.
  const int short_step = spec.window_left < 0 ? 128 : 80;
  const bool of_128 = !wide && spec.head_dim_v > 112;
  if (masked && of_128 && t.warpgroups > 1 && t.block_n < short_step) factor *= 1.06;
  const bool causal_long = masked && spec.window_left < 0 && shape.seqlen_kv >= 2048;
  if (narrow && causal_long && t.warpgroups == 4) factor *= 0.95;  // skipped steps, and no gaps
  if (c.at("kv_slots") > 2) factor *= narrow && t.block_n <= 64 ? 0.98 : 1.05;
  if (!t.staged) factor *= 1.01;
  if (c.at("kv_ring") == 3) factor *= wide ? 1.01 : 1.06;
  if (c.at("kv_ring") == 5) factor *= wide ? 0.98 : shape.seqlen_kv <= 1024 ? 0.99 : 1.01;
  factor *= sm90_section_factor(spec, c, shape, device);
  const bool sums = c.at("row_max") == 1;
  const bool even = !masked || shape.seqlen_kv <= 1024;  // few masked steps, or few steps
  const bool sums_win = spec.window_left < 0 && (narrow || wide || t.warpgroups == 3 || even);
  if (sums != sums_win) factor *= narrow ? 1.04 : 1.02;
  if (t.scheduler == Sm90Scheduler::kOneTile && t.splits == 1 && !is_one_wave(c, t, shape, device))
    factor *= 1.02;
  const bool drawn = masked && !is_one_wave(c, t, shape, device);  // else there is no order
  if (t.scheduler == (drawn ? Sm90Scheduler::kStatic : Sm90Scheduler::kDynamic)) factor *= 1.02;
  const bool turns_win = t.warpgroups == 3 ||
                         (t.warpgroups == 4 && masked && shape.seqlen_kv >= 2048) ||
                         (!narrow && !wide && sums_win);
  if (t.warpgroups > 1 && t.overlap && t.ping_pong != turns_win) factor *= 1.02;
  return factor;
}

// Spreads the tiles over `slots` blocks, in the order they are taken (longest first when causal).
double makespan(const std::vector<double>& tile_clocks, double copies, double slots,
                const Tile& t) {
  double total = 0;
  double longest = 0;
  for (const double clocks : tile_clocks) {
    total += clocks * copies;
    longest = std::max(longest, clocks);
  }
  const double count = static_cast<double>(tile_clocks.size()) * copies;
  const double mean = total / count;
  if (t.scheduler == Sm90Scheduler::kStatic)
    return std::ceil(count / slots) * std::max(mean, (mean + longest) / 2);
  const double shortest = *std::min_element(tile_clocks.begin(), tile_clocks.end());
  const double even = total / slots;
  if (longest - shortest < 0.1 * longest) return std::max(std::ceil(count / slots) * mean, longest);
  return std::max(even + 0.5 * shortest, longest);
}

// Returns the steps of the tile starting at `first_row`. Warpgroups skip steps of which they see
// nothing (kSkipsSteps in wgmma_products.cuh). That makes room for the others, but the tile does
// not end sooner, so half of it counts.
double steps_of_tile(const KernelSpec& spec, const Shape& shape, int64_t first_row, int64_t rows,
                     const Tile& t) {
  const auto steps = [&](int64_t first, int64_t count) {
    return std::max<int64_t>(1, sm90_visible_blocks(spec, shape, first, count, t.block_n));
  };
  const auto whole = static_cast<double>(steps(first_row, rows));
  if (t.block_n >= rows) return whole;
  int64_t own = 0;
  const int64_t part = rows / t.warpgroups;
  for (int i = 0; i < t.warpgroups; ++i) own += steps(first_row + i * part, part);
  return (whole + static_cast<double>(own) / t.warpgroups) / 2;
}

// Returns the number of tiles of the heads whose K and V fit into a section of `section_mb`
// megabytes (TileScheduler).
int64_t section_tiles(const KernelSpec& spec, const Config& config, const Shape& shape,
                      int64_t section_mb) {
  const int64_t head_bytes = dtype_bytes(spec.dtype_kv) * (spec.head_dim_qk + spec.head_dim_v) *
                             std::max<int64_t>(shape.seqlen_kv, 1);
  const int64_t heads = std::max<int64_t>((section_mb << 20) / head_bytes, 1) * spec.gqa_ratio;
  return heads * sm90_tiles(config, shape).row_blocks;
}

// Returns the megabytes of K and V that tiles work through together: about two thirds of the L2, as
// 8, 16 or 32.
//   0            without a causal mask and without a mask program
//   32           with kv_splits or pack_heads
//   at most 16   up to 1024 keys, with the dynamic scheduler and without a left window
//   4 or 8       up to 512 keys under the same conditions, if it gives nearly every multiprocessor
//                a tile, and the smaller if both do; short sequences are bound by memory
int usual_section_mb(const KernelSpec& spec, const Config& config, const Shape& shape,
                     const DeviceFacts& device) {
  if (!sm90_longest_first(spec)) return 0;
  if (config.at("kv_splits") > 1 || config.get("pack_heads", 1) > 1) return 32;
  const int64_t most_mb = device.l2_bytes * 2 / 3 >> 20;
  const int held = most_mb >= 32 ? 32 : most_mb >= 16 ? 16 : 8;
  const bool dynamic = config.at("scheduler") == static_cast<int>(Sm90Scheduler::kDynamic);
  if (!dynamic || spec.window_left >= 0 || shape.seqlen_kv > 1024) return held;
  if (shape.seqlen_kv <= 512)
    for (const int section : {4, 8})
      if (10 * section_tiles(spec, config, shape, section) >= 9 * device.sm_count) return section;
  return std::min(held, 16);
}

// Returns how many blocks run at once in clusters of `cluster` blocks, which lie in one group of
// multiprocessors. An H200 of 132 says so (cudaOccupancyMaxActiveClusters).
int64_t blocks_in_clusters(const DeviceFacts& device, int cluster) {
  constexpr int64_t kOf132[] = {0, 132, 132, 117, 120, 110, 102, 105, 120};
  return device.sm_count * kOf132[cluster] / 132 / cluster * cluster;
}

// Returns the config, and copies of it that split the keys as far as the device has room for blocks
// and each block has some steps. If all tiles run at once, none is drawn from a counter.
std::vector<Config> with_splits(const KernelSpec& spec, const Config& config,
                                const SearchSpace& legal, const Shape& shape,
                                const DeviceFacts& device) {
  constexpr int64_t kLeastSteps = 2;
  std::vector<Config> all{config};
  const auto drawn = static_cast<int>(Sm90Scheduler::kDynamic);
  if (config.at("scheduler") == drawn && is_one_wave(config, tile_of(spec, config), shape, device))
    all.back().set("scheduler", static_cast<int>(Sm90Scheduler::kStatic));
  const int64_t tiles = sm90_tiles(config, shape).count();
  for (const Knob& knob : legal.knobs()) {
    if (knob.name != "kv_splits") continue;
    for (const int64_t splits : knob.values) {
      if (splits == 1 ||
          splits * tiles > blocks_in_clusters(device, split_cluster(static_cast<int>(splits))) ||
          splits * kLeastSteps * config.at("block_n") > shape.seqlen_kv)
        continue;
      all.push_back(config);
      all.back().set("kv_splits", splits);
      all.back().set("scheduler", 0);
    }
  }
  return all;
}

}  // namespace

int64_t sm90_visible_blocks(const KernelSpec& spec, const Shape& shape, int64_t first_row,
                            int64_t rows, int block_n) {
  const int64_t last_row = std::min(first_row + rows, shape.seqlen_q) - 1;
  const auto [first, last] = keys_of_rows(spec, shape, first_row, last_row);
  // kBlocksFollowWindow
  const bool follow = spec.window_left >= 0 && dtype_bytes(spec.dtype_kv) == 2;
  const int64_t origin = follow ? first : first / block_n * block_n;
  return last < first ? 0 : (last - origin) / block_n + 1;
}

double sm90_section_factor(const KernelSpec& spec, const Config& config, const Shape& shape,
                           const DeviceFacts& device) {
  const auto section = static_cast<int>(config.at("l2_section_mb"));
  const int best = usual_section_mb(spec, config, shape, device);
  if (section == best) return 1;
  const bool far = section > 0 && best > 0 && std::max(section, best) > 2 * std::min(section, best);
  return far ? 1.08 : 1.04;
}

double sm90_predicted_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                             const DeviceFacts& device) {
  const Tile t = tile_of(spec, config);
  const bool crowded = !is_one_wave(config, t, shape, device);
  const double step = step_clocks(slice_of(spec, config), t, crowded) * t.ctas *
                      variant_penalty(spec, shape, config, t, device);
  return sm90_launch_clocks(spec, config, shape, device, step);
}

double sm90_launch_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                          const DeviceFacts& device, double step) {
  const Tile t = tile_of(spec, config);
  const Sm90Tiles whole = sm90_tiles(config, shape);
  const int64_t row_blocks = std::max<int64_t>(1, whole.row_blocks);
  const int64_t sampled = std::min<int64_t>(row_blocks, 64);
  const bool one_wave = is_one_wave(config, t, shape, device);
  std::vector<double> tiles;
  for (int64_t i = 0; i < sampled; ++i) {
    const int64_t row_block = sampled == row_blocks ? i : i * (row_blocks - 1) / (sampled - 1);
    const double steps = steps_of_tile(spec, shape, row_block * whole.rows, whole.rows, t);
    double clocks = (t.splits > 1 ? std::ceil(steps / t.splits) : steps) * step +
                    kTileClocks * (t.overlap ? 1.0 : 1.2);
    if (t.scheduler == Sm90Scheduler::kOneTile && !one_wave) clocks += kLaunchClocks / t.ctas;
    clocks += join_clocks(spec, t);
    tiles.push_back(clocks);
  }
  const double copies = static_cast<double>(whole.groups * t.splits) *
                        static_cast<double>(row_blocks) / static_cast<double>(sampled);
  return makespan(tiles, copies, static_cast<double>(device.sm_count) * t.ctas, t);
}

Config sm90_fastest(std::string_view family, const SearchSpace& legal,
                    const std::vector<Config>& candidates, const KernelSpec& spec,
                    const Shape& shape, const DeviceFacts& device, Sm90Clocks clocks) {
  std::optional<Config> best;
  double best_cost = 0;
  for (const Config& candidate : candidates)
    for (const Config& config : with_splits(spec, candidate, legal, shape, device)) {
      if (legal.broken(config)) continue;
      Config sized = config;
      sized.set("l2_section_mb", usual_section_mb(spec, config, shape, device));
      if (legal.broken(sized)) sized = config;
      const double cost = clocks(spec, sized, shape, device);
      if (best && cost >= best_cost) continue;
      best = std::move(sized);
      best_cost = cost;
    }
  if (!best)
    throw Error(ErrorCode::kInternal,
                fmt::format("{} has no default config for {}", family, to_text(spec)));
  return *best;
}

}  // namespace attune
