// SPDX-License-Identifier: Apache-2.0
// The cost model: clocks of a step from the busiest units, steps of a tile from the mask, tiles
// over multiprocessors.
#include "generator/families/backward/backward_sm90_cost.hpp"
#include "generator/families/backward/gradient_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "generator/core/problem/visibility.hpp"
#include "templates/shared/layouts/backward_band_layout.h"
#include "templates/shared/layouts/backward_stored_layout.h"
#include "templates/shared/visible_rows.h"

namespace attune {
namespace {

// Per multiprocessor and clock (sm_90).
constexpr double kMmaFlops = 4096;  // dense 16-bit
constexpr double kExponentials = 16;
constexpr double kSharedBytes = 128;
constexpr double kMemoryBytes = 19;
constexpr double kWrittenBytes = 36;  // during products
// start of a block, first loads, first and last product, store
constexpr double kTileClocks = 4500;
constexpr double kStartedTileClocks = 14000;    // for a block that makes all gradients and exits
constexpr double kDqWarpgroupTileClocks = 700;  // added, until dQ of the last step is made
// saved when the next block starts while the last one ends
constexpr double kUnorderedTileClocks = -1500;
constexpr double kStepClocks = 120;  // barriers and bookkeeping of a step

constexpr int kStoredElementBytes = 2;  // for dS and for P

int knob(const Config& c, const char* name) { return static_cast<int>(c.at(name)); }

// Columns of head dims that a step multiplies, and bytes of shared memory that its products read
// per warpgroup.
struct Step {
  double columns, bytes;
};

Step step_of(const BackwardKernel& kernel, const KernelSpec& spec) {
  const double n = kernel.tile.step_rows, qk = spec.head_dim_qk, v = spec.head_dim_v;
  if (kernel.of_stored()) {
    const double columns = kernel.tile.head_dim_qk;
    return {columns, n * (2 * columns + 2 * kWarpgroupRows)};
  }
  const double row = 2.0 * (kWarpgroupRows + n);       // bytes per column of both operands
  const bool ds = kernel.makes != BackwardMakes::kDv;  // needs dP
  Step step{qk, row * qk};
  if (ds) step.columns += v + qk, step.bytes += row * v + 2 * n * qk;
  if (kernel.makes == BackwardMakes::kDv || kernel.makes == BackwardMakes::kDkDv ||
      kernel.makes == BackwardMakes::kAll)
    step.columns += v, step.bytes += 2 * n * v;
  if (kernel.makes == BackwardMakes::kAll)  // dQ: half of it in each warpgroup, or all in one
    step.columns += qk, step.bytes += (kernel.dq_warpgroup ? 1 : 2) * n * 128 + 128 * qk;
  return step;
}

// Returns the factor for too few slots, since loads of the next step need time to arrive. The first
// operand is multiplied twice and frees its slot late; a third slot for the second gains nothing.
// The factors are geomeans of pairs of trials. With scores of 128 keys, rows have few registers
// left.
double waiting(const BackwardKernel& kernel, const KernelSpec& spec) {
  // The two warpgroups wait for each other, and for turns
  if (kernel.makes == BackwardMakes::kAll) {
    const BackwardSm90Tile& t = kernel.tile;
    const double drawn = kernel.draws_tiles ? 1.01 : 1;
    // Unordered sums do not wait for turns, and dQ is stored along with dK. Rows of a window see
    // few blocks, whose turns are short.
    if (!kernel.ordered)
      return (spec.window_left >= 0 || spec.window_right >= 0 ? 1.6 : 1.26) * drawn +
             0.3 * (2 - std::min(t.second_slots, 2)) + 0.005 * t.first_slots;
    if (kernel.dq_warpgroup)  // at most the time of halves; two slots of Q cost more
      return 1.24 * drawn + 0.15 * (3 - t.first_slots) + 0.005 * std::abs(t.second_slots - 3);
    const bool halves = backward_fused_in_halves(t.step_rows, t.head_dim_qk + t.head_dim_v);
    return (halves ? 1.36 : 1.38) * drawn + 0.005 * t.first_slots +
           0.005 * std::abs(t.second_slots - 2);
  }
  if (kernel.of_stored()) return 1.2 + 0.1 * (3 - kernel.tile.first_slots);
  constexpr double kThird = 0.005, kWide = 0.05;
  const double first = kernel.of_rows() ? 0.2 : 0.02;
  // Steps of wide heads take longer
  const double second = kernel.tile.head_dim_qk <= 128 ? 0.06 : 0.01;
  double share = 1 + first * (3 - kernel.tile.first_slots);
  if (kernel.tile.second_slots == 1) share += second;
  if (kernel.tile.second_slots == 3) share += kThird;
  if (kernel.of_rows() && kernel.tile.step_rows >= 128) share += kWide;
  return share;
}

// Returns the clocks of all warpgroups of a block. Two or three of them hide latencies that one
// alone shows.
double step_clocks(const BackwardKernel& kernel, const KernelSpec& spec) {
  const Step step = step_of(kernel, spec);
  const int warpgroups = kernel.tile.stay_rows / kWarpgroupRows;
  const double elements = kernel.tile.stay_rows * kernel.tile.step_rows;
  const double mma = elements * 2 * step.columns / kMmaFlops;
  const double shared = warpgroups * step.bytes / kSharedBytes;
  const double chain =
      kernel.of_stored() ? 0 : 1.6 * elements / kExponentials;  // and the arithmetic of dS
  const double hidden = warpgroups >= 2 ? 0.25 : 0.7;
  const double stored = kernel.stored_bytes * elements;
  const double read = kernel.of_stored() ? stored / kMemoryBytes : 0;
  const double written = kernel.of_rows() ? stored / kWrittenBytes : 0;
  const double clocks =
      std::max({mma, shared, chain, read}) + hidden * std::min(mma, chain) + written + kStepClocks;
  return clocks * waiting(kernel, spec);
}

BackwardKernel keys_kernel(const KernelSpec& spec, const Config& c, BackwardMakes makes) {
  const bool k = makes != BackwardMakes::kDv, v = makes != BackwardMakes::kDk;
  const int rows = knob(c, "key_block_m");
  const int columns = (k ? spec.head_dim_qk : 0) + (v ? spec.head_dim_v : 0);
  return {makes,
          {knob(c, "key_block_n"), rows, knob(c, "q_slots"), knob(c, "dout_slots"),
           spec.head_dim_qk, spec.head_dim_v, k, true},
          backward_sm90_accumulators(rows, columns) - (k ? 0 : rows / 2),
          std::max({rows, k ? spec.head_dim_qk : 0, v ? spec.head_dim_v : 0})};
}

// Returns the band kernel. It holds scores and dP of a step, or their rounded form, besides dK, dV
// and two tiles of dQ.
BackwardKernel band_kernel(const KernelSpec& spec) {
  const int qk = spec.head_dim_qk, v = spec.head_dim_v;
  return {.makes = BackwardMakes::kBand,
          .tile = {kBandWalkers * kBandTile, kBandTile, kBandRowSlots, kBandRowSlots, qk, v, true,
                   true},
          .accumulators = kBandTile + (3 * qk + v) / 2,
          .widest = std::max({kBandTile, qk, v})};
}

// Returns the kernel of dK or dV from stored values. The gradient of a tile's keys stays in
// accumulators; rows of Q or dout, and stored values for them, stream.
BackwardKernel stored_kernel(const Config& c, BackwardMakes makes, int columns) {
  const int keys = knob(c, "key_block_n"), slots = knob(c, "q_slots");
  return {.makes = makes,
          .tile = {keys, kWarpgroupRows, slots, slots, columns, keys, false, false},
          .accumulators = columns / 2,
          .widest = columns,
          .stored_bytes = kStoredElementBytes};
}

// Returns the number of places per line, which two blocks of rows share. The later block comes
// first.
int stored_stride(const KernelSpec& spec, const Shape& shape) {
  const int64_t blocks = backward_stored_blocks(shape.seqlen_q);
  const auto places = [&](int64_t block) -> int64_t {
    const int64_t first = block * kWarpgroupRows;
    const auto keys =
        keys_of_rows(spec, shape, first, std::min(first + kWarpgroupRows, shape.seqlen_q) - 1);
    const int64_t seen =
        keys.last < keys.first ? 0 : keys.last / kWarpgroupRows - keys.first / kWarpgroupRows + 1;
    return seen + 2 * kStoredMargin;
  };
  int64_t most = 0;
  for (int64_t block = 0; block < backward_stored_lines(shape.seqlen_q); ++block)
    most = std::max(most, places(block) + places(blocks - 1 - block));
  return tile_count(most);
}

int64_t place_elements(const KernelSpec& spec, const Config& c) {
  return (stores_p(spec, c) ? 2 : 1) * kStoredBytes / dtype_bytes(spec.dtype_q);
}

// Returns the workspace bytes of stored values per head of K.
int64_t stored_bytes(const KernelSpec& spec, const Config& c, const Shape& shape) {
  return spec.gqa_ratio * backward_stored_lines(shape.seqlen_q) * stored_stride(spec, shape) *
         place_elements(spec, c) * dtype_bytes(spec.dtype_q);
}

// Returns the cost factor for taking the tiles of section_heads heads in turn. If the heads do not
// fit in L2, the data that blocks stream and add up comes from memory. With fewer heads, blocks
// form a longer queue, each waiting for the one ahead.
double section_share(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape) {
  constexpr double kBytes = 32 << 20, kMost = 32, kOctave = 0.02;
  if (kernel.makes != BackwardMakes::kAll) return 1;
  const double seen = spec.mask == Mask::kNone ? 1 : 0.5;
  const double row = 2.0 * (spec.head_dim_qk + spec.head_dim_v) + 4.0 * spec.head_dim_qk;
  const double head =
      row * spec.gqa_ratio * seen * static_cast<double>(std::max<int64_t>(shape.seqlen_q, 1));
  return 1 + kOctave *
                 std::abs(std::log2(kernel.section_heads / std::clamp(kBytes / head, 1.0, kMost)));
}

// Returns the clocks of a walk along a band, including L2 and delta; fitted on an H100.
double band_clocks(const KernelSpec& spec, const Shape& shape, const DeviceFacts& device) {
  constexpr double kPlaceClocks = 11500;  // three steps
  const int64_t places = backward_places(spec, shape);
  const int64_t walkers =
      kBandWalkers * std::max<int64_t>(backward_band_blocks(places, device.sm_count), 1);
  const int64_t each = (places + walkers - 1) / walkers;
  return kTileClocks + kPlaceClocks * static_cast<double>(2 + each);
}

// Returns the clocks of delta, by a separate step or by the kernel of dq.
double sums_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                   const DeviceFacts& device) {
  constexpr double kStart = 3000;   // one more grid
  constexpr double kFolded = 0.33;  // the share that products do not hide
  const double rows = static_cast<double>(shape.batch * shape.num_heads_q * shape.seqlen_q);
  const double bytes = 2 * 2.0 * spec.head_dim_v * rows;  // o and dout
  const double clocks = bytes / kMemoryBytes / device.sm_count;
  if (fuses_dq(config))  // and dQ, from fp32
    return clocks + 10.0 * spec.head_dim_qk * rows / kMemoryBytes / device.sm_count + 2 * kStart;
  return config.at("fold_sums") != 0 ? kFolded * clocks : clocks + kStart;
}

}  // namespace

bool fuses_dq(const Config& config) { return config.at("fuse_dq") != 0; }

bool walks_band(const Config& config) { return config.get("band", 0) != 0; }

bool makes_all_at_once(const Config& config) { return fuses_dq(config) || walks_band(config); }

bool stores_ds(const Config& config) { return config.get("store_ds", 0) != 0; }
bool stores_p(const KernelSpec& spec, const Config& config) {
  return stores_ds(config) && asks(spec.backward.gradients, Gradients::kV);
}

bool makes_halves(const KernelSpec& spec, const Config& c) {
  return fuses_dq(c) && c.at("ordered") != 0 &&
         backward_fused_in_halves(knob(c, "key_block_m"), spec.head_dim_qk + spec.head_dim_v);
}

bool has_dq_warpgroup(const KernelSpec& spec, const Config& c) {
  return fuses_dq(c) && c.at("ordered") != 0 &&
         backward_has_dq_warpgroup(knob(c, "key_block_m"), spec.head_dim_qk, spec.head_dim_v);
}

bool transposes_dq(const Config& c) {
  return fuses_dq(c) && backward_dq_half(knob(c, "key_block_m")) == DqHalf::kTransposed;
}

BackwardKernel backward_rows_kernel(const KernelSpec& spec, const Config& c) {
  const int keys = knob(c, "block_n");
  BackwardKernel rows{BackwardMakes::kDq,
                      {knob(c, "block_m"), keys, knob(c, "k_slots"), knob(c, "v_slots"),
                       spec.head_dim_qk, spec.head_dim_v, true, false},
                      backward_sm90_accumulators(keys, spec.head_dim_qk),
                      std::max(keys, spec.head_dim_qk)};
  if (stores_ds(c)) rows.stored_bytes = (stores_p(spec, c) ? 2 : 1) * kStoredElementBytes;
  return rows;
}

std::vector<BackwardKernel> backward_keys_kernels(const KernelSpec& spec, const Config& c) {
  if (walks_band(c)) return {band_kernel(spec)};
  if (fuses_dq(c)) {
    BackwardKernel all = keys_kernel(spec, c, BackwardMakes::kAll);
    all.section_heads = knob(c, "fuse_dq");
    all.ordered = c.at("ordered") != 0;
    all.draws_tiles = c.at("draw_tiles") != 0;
    const int rows = all.tile.step_rows, dq = backward_fused_columns(rows, spec.head_dim_qk) / 2;
    // P next to dQ, or next to dP and rounded P: for all rows of a step, or half of them.
    const int gradients = spec.head_dim_qk + spec.head_dim_v;
    const int beside = rows / 2 + rows / 4;
    all.dq_warpgroup = has_dq_warpgroup(spec, c);
    all.tile.ds_slots = all.ordered ? kFusedDsSlots : kUnorderedDsSlots;
    all.accumulators =
        all.dq_warpgroup ? backward_sm90_accumulators(rows, gradients)
        : !all.ordered
            ? backward_unordered_accumulators(rows, gradients, 2 * dq)
            : gradients / 2 + rows / 2 + std::max(makes_halves(spec, c) ? beside / 2 : beside, dq);
    return {all};
  }
  const bool k = asks(spec.backward.gradients, Gradients::kK),
             v = asks(spec.backward.gradients, Gradients::kV);
  if (stores_ds(c)) {
    std::vector<BackwardKernel> kernels{
        stored_kernel(c, BackwardMakes::kStoredDk, spec.head_dim_qk)};
    if (v) kernels.push_back(stored_kernel(c, BackwardMakes::kStoredDv, spec.head_dim_v));
    return kernels;
  }
  if (k && v && knob(c, "split_kv") != 0)
    return {keys_kernel(spec, c, BackwardMakes::kDk), keys_kernel(spec, c, BackwardMakes::kDv)};
  if (!k && !v) return {};
  return {keys_kernel(spec, c,
                      k && v ? BackwardMakes::kDkDv
                      : k    ? BackwardMakes::kDk
                             : BackwardMakes::kDv)};
}

std::vector<BackwardKernel> backward_kernels(const KernelSpec& spec, const Config& c) {
  std::vector<BackwardKernel> kernels;
  if (asks(spec.backward.gradients, Gradients::kQ) && !makes_all_at_once(c))
    kernels.push_back(backward_rows_kernel(spec, c));
  for (const BackwardKernel& one : backward_keys_kernels(spec, c)) kernels.push_back(one);
  return kernels;
}

LaunchSizes::Rounds backward_rounds(const KernelSpec& spec, const Config& c, const Shape& shape) {
  const int heads = tile_count(shape.batch * shape.num_heads_kv);
  const int64_t of_round = backward_stored_heads(heads, stored_bytes(spec, c, shape));
  return {.heads = heads,
          .of_round = static_cast<int>(std::max<int64_t>(of_round, 1)),
          .stride = stored_stride(spec, shape)};
}

TensorExtents backward_stored_extents(const KernelSpec& spec, const Config& c, const Shape& shape) {
  return {.columns = place_elements(spec, c),
          .rows = stored_stride(spec, shape),
          .heads = backward_stored_lines(shape.seqlen_q),
          .batch = spec.gqa_ratio * backward_rounds(spec, c, shape).of_round};
}

std::optional<std::string> backward_unfit(const KernelSpec& spec, const Config& c,
                                          const Shape& shape) {
  if (walks_band(c) && !band_fits(spec, shape))
    return fmt::format(
        "band has three tiles of {} keys for {} rows; a window of {}:{} needs four if key {} is on "
        "the first row's diagonal",
        kBandTile, kBandTile, band_width(spec).left, band_width(spec).right,
        first_diagonal(spec, shape));
  if (!stores_ds(c)) return std::nullopt;
  const int64_t bytes = stored_bytes(spec, c, shape);
  if (bytes <= kMostStoredBytes) return std::nullopt;
  return fmt::format("with store_ds a head of k takes {} bytes of workspace; must be at most {}",
                     bytes, kMostStoredBytes);
}

int64_t backward_places(const KernelSpec& spec, const Shape& shape) {
  return band_places(spec, shape).count * shape.num_heads_q * shape.batch;
}

int64_t backward_tiles(const BackwardKernel& kernel, const Shape& shape) {
  const int64_t length = kernel.of_rows() ? shape.seqlen_q : shape.seqlen_kv;
  const int64_t heads = kernel.of_rows() ? shape.num_heads_q : shape.num_heads_kv;
  return (length + kernel.tile.stay_rows - 1) / kernel.tile.stay_rows * heads * shape.batch;
}

double backward_clocks(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                       const DeviceFacts& device) {
  constexpr int64_t kSamples = 64;
  const int64_t length = kernel.of_rows() ? shape.seqlen_q : shape.seqlen_kv;
  const int64_t blocks = (length + kernel.tile.stay_rows - 1) / kernel.tile.stay_rows;
  if (blocks == 0) return 0;
  const int64_t sampled = std::min(blocks, kSamples);
  const double step = step_clocks(kernel, spec) * section_share(kernel, spec, shape);
  const double tile =
      (kernel.makes == BackwardMakes::kAll && !kernel.draws_tiles ? kStartedTileClocks
                                                                  : kTileClocks) +
      (kernel.dq_warpgroup ? kDqWarpgroupTileClocks : 0) +
      (kernel.makes == BackwardMakes::kAll && !kernel.ordered ? kUnorderedTileClocks : 0);
  double sum = 0, longest = 0;
  for (int64_t i = 0; i < sampled; ++i) {
    const int64_t block = sampled == blocks ? i : i * (blocks - 1) / (sampled - 1);
    const double clocks = step * static_cast<double>(gradient_steps(
                                     kernel, spec, shape, block * kernel.tile.stay_rows)) +
                          tile;
    sum += clocks;
    longest = std::max(longest, clocks);
  }
  const double mean = sum / static_cast<double>(sampled);
  const double total = mean * static_cast<double>(backward_tiles(kernel, shape));
  return std::max(longest, total / device.sm_count + 0.5 * mean);
}

double backward_cost(const KernelSpec& spec, const Config& config, const Shape& shape,
                     const DeviceFacts& device) {
  if (walks_band(config)) return band_clocks(spec, shape, device);
  double clocks = sums_clocks(spec, config, shape, device);
  for (const BackwardKernel& kernel : backward_kernels(spec, config))
    clocks += backward_clocks(kernel, spec, shape, device);
  return clocks;
}

}  // namespace attune
