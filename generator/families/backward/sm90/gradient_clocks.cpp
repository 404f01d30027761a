// SPDX-License-Identifier: Apache-2.0
// The cost model: clocks of a step from the busiest units, steps of a tile from the mask, tiles
// over multiprocessors.
#include "generator/families/backward/sm90/gradient_clocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "generator/families/backward/gradient_steps.hpp"
#include "generator/families/backward/sm90/head_parts.hpp"
#include "templates/shared/layouts/backward_band_layout.h"
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
constexpr double kStepClocks = 120;   // barriers and bookkeeping of a step
constexpr double kGridClocks = 3000;  // one more grid
// Parts of heads end in another order than their turns, so blocks wait (71 heads over one: 1.45).
constexpr double kTurnsOfParts = 1.3;
// The grids around a kernel that adds dQ: of 150 to 500 tokens they took 5 to 9 us (H200).
constexpr double kRoundingGrids = 5;
// of blocks that draw tiles: long tiles pair with short ones
constexpr double kDrawnSlack = 0.2;

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
    step.columns += backward_dq_columns(kernel.tile.step_rows, spec.head_dim_qk),
        step.bytes += (kernel.dq_warpgroup ? 1 : 2) * n * 128 + 128 * qk;
  return step;
}

// Returns the factor of a kernel that adds dQ in no fixed order. It does not wait for turns, and
// stores dQ along with dK. Rows of a window see few blocks, whose turns are short. Zeros of padded
// columns are staged and added too. Short steps have too little work between barriers.
double unordered_waiting(const BackwardSm90Tile& t, const KernelSpec& spec) {
  const int columns = backward_dq_columns(t.step_rows, t.head_dim_qk);
  const double padded = static_cast<double>(columns - t.head_dim_qk) / columns;
  return (spec.window_left >= 0 || spec.window_right >= 0 ? 1.6 : 1.26) +
         0.3 * (2 - std::min(t.second_slots, 2)) + 0.005 * t.first_slots + 0.2 * padded +
         0.2 * std::max(0, kWarpgroupRows - t.step_rows) / 16;
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
    if (!kernel.ordered) return drawn * unordered_waiting(t, spec);
    if (kernel.dq_warpgroup)  // at most the time of halves; two slots of Q cost more
      return 1.24 * drawn + 0.15 * (3 - t.first_slots) + 0.005 * std::abs(t.second_slots - 3);
    const bool halves = backward_one_kernel_in_halves(t.step_rows, t.head_dim_qk + t.head_dim_v);
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

// Returns the clocks of a work tile besides its steps.
double tile_clocks(const BackwardKernel& kernel) {
  const bool all = kernel.makes == BackwardMakes::kAll;
  return (all && !kernel.draws_tiles ? kStartedTileClocks : kTileClocks) +
         (kernel.dq_warpgroup ? kDqWarpgroupTileClocks : 0) +
         (all && !kernel.ordered ? kUnorderedTileClocks : 0);
}

// Returns the clocks of a kernel whose blocks take parts of heads, and of the step that joins them.
double parts_clocks(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                    const DeviceFacts& device) {
  BackwardKernel whole = kernel;
  whole.splits_heads = false;
  const HeadSplit split = head_split(kernel, spec, shape, device);
  const double more_tiles = static_cast<double>(backward_tiles(kernel, shape) * (split.parts - 1));
  const double turns = kernel.makes == BackwardMakes::kAll && kernel.ordered ? kTurnsOfParts : 1;
  return turns * split.share * backward_clocks(whole, spec, shape, device) +
         more_tiles / device.sm_count * tile_clocks(kernel) + kGridClocks;
}

}  // namespace

double backward_clocks(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                       const DeviceFacts& device) {
  constexpr int64_t kSamples = 64;
  if (kernel.splits_heads) return parts_clocks(kernel, spec, shape, device);
  const int64_t length = kernel.of_rows() ? shape.seqlen_q : shape.seqlen_kv;
  const int64_t blocks = (length + kernel.tile.stay_rows - 1) / kernel.tile.stay_rows;
  if (blocks == 0) return 0;
  const int64_t sampled = std::min(blocks, kSamples);
  const double step = step_clocks(kernel, spec) * section_share(kernel, spec, shape);
  double sum = 0;
  std::vector<double> clocks;
  for (int64_t i = 0; i < sampled; ++i) {
    const int64_t block = sampled == blocks ? i : i * (blocks - 1) / (sampled - 1);
    clocks.push_back(step * static_cast<double>(gradient_steps(kernel, spec, shape,
                                                               block * kernel.tile.stay_rows)) +
                     tile_clocks(kernel));
    sum += clocks.back();
  }
  std::sort(clocks.begin(), clocks.end(), std::greater<>());
  const double mean = sum / static_cast<double>(sampled);
  const int64_t tiles = backward_tiles(kernel, shape);
  if (kernel.draws_tiles) return last_end(clocks, mean, tiles, device.sm_count, kDrawnSlack);
  return std::max(clocks.front(), mean * static_cast<double>(tiles) / device.sm_count + 0.5 * mean);
}

// Some multiprocessor takes k + 1 of the first k sm_count + 1 tiles. So tiles of one length end in
// whole waves. After a few waves, multiprocessors no longer end together.
double last_end(const std::vector<double>& sorted, double mean, int64_t tiles, int sm_count,
                double slack) {
  constexpr int64_t kWaves = 4;
  double end = 0;
  for (int64_t wave = 0; wave < kWaves && wave * sm_count < tiles; ++wave) {
    const int64_t sample = wave * sm_count * static_cast<int64_t>(sorted.size()) / tiles;
    end = std::max(end, static_cast<double>(wave + 1) * sorted[static_cast<size_t>(sample)]);
  }
  if (tiles <= sm_count) return end;
  return std::max(end,
                  mean * static_cast<double>(tiles) / sm_count + slack * (mean - sorted.back()));
}

double sums_clocks(const KernelSpec& spec, Sums sums, const Shape& shape,
                   const DeviceFacts& device) {
  constexpr double kFolded = 0.33;  // the share that products do not hide
  const double rows = static_cast<double>(shape.batch * shape.num_heads_q * shape.seqlen_q);
  const double bytes = 2 * 2.0 * spec.head_dim_v * rows;  // o and dout
  const double clocks = bytes / kMemoryBytes / device.sm_count;
  if (sums == Sums::kRounds)  // and dQ, from fp32
    return clocks + 10.0 * spec.head_dim_qk * rows / kMemoryBytes / device.sm_count +
           kRoundingGrids * kGridClocks;
  return sums == Sums::kFolded ? kFolded * clocks : clocks + kGridClocks;
}

// Fitted on an H100.
double band_clocks(int64_t places, const DeviceFacts& device) {
  constexpr double kPlaceClocks = 11500;  // three steps
  const int64_t walkers =
      kBandWalkers * std::max<int64_t>(backward_band_blocks(places, device.sm_count), 1);
  const int64_t each = (places + walkers - 1) / walkers;
  return kTileClocks + kPlaceClocks * static_cast<double>(2 + each);
}

}  // namespace attune
