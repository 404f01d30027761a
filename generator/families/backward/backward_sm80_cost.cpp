// SPDX-License-Identifier: Apache-2.0
// The cost model: clocks of a step of all resident blocks from tensor cores, issue slots and shared
// memory; steps of a tile from the mask; tiles over multiprocessors.
#include "generator/families/backward/backward_sm80_cost.hpp"
#include "generator/families/backward/gradient_steps.hpp"

#include <algorithm>
#include <cmath>

#include "generator/core/problem/visibility.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/visible_rows.h"

namespace attune {
namespace {

constexpr double kClocksPerMma = 6.6;  // m16n8k16 on one of four schedulers
constexpr double kSchedulers = 4.0;
constexpr double kSharedBytesPerClock = 128.0;
// FMA, exp2, subtract, multiply, two halves of a rounding
constexpr double kIssuesPerElement = 5.0;
constexpr double kIssuesPerProgram = 12.0;
constexpr double kIssuesPerCopy = 6.0;
constexpr double kIssuesPerStep = 60.0;
constexpr double kOverlap = 0.35;         // the visible part of the shorter of products and issues
constexpr double kBarrierClocks = 500.0;  // per step, shared by the blocks of a multiprocessor
constexpr double kNothingInFlight = 1200.0;
constexpr double kTileClocks = 4000.0;  // start, first loads, store

// The work of a warp in a step.
struct StepWork {
  double mma = 0;           // products
  double shared_bytes = 0;  // read by ldmatrix
};

StepWork step_work(const MmaGradientKernel& kernel, const KernelSpec& spec) {
  const double row_tiles = backward_sm80_layout(kernel.tile).row_tiles;
  const double rows = kernel.tile.step_rows;
  const double qk = spec.head_dim_qk, v = spec.head_dim_v;
  StepWork work;
  const auto add = [&](double columns, bool reads_stay) {
    work.mma += row_tiles * rows / 8 * columns / 16;
    work.shared_bytes += 2 * columns * (rows + (reads_stay ? 16 * row_tiles : 0));
  };
  add(qk, true);
  if (kernel.makes_first()) add(v, true), add(qk, false);
  if (kernel.makes_second()) add(v, false);
  return work;
}

// Returns the clocks in which `blocks` blocks on one multiprocessor do one step each.
double step_clocks(const MmaGradientKernel& kernel, const KernelSpec& spec, double blocks) {
  const BackwardSm80Tile& t = kernel.tile;
  const StepWork work = step_work(kernel, spec);
  const double elements = t.stay_rows / 32.0 / t.warps * t.step_rows;  // per thread
  const double programs = (has_score_stage(spec) ? kIssuesPerProgram : 0) +
                          (has_mask_program(spec) ? kIssuesPerProgram : 0);
  const double bytes = 2.0 * t.step_rows * (spec.head_dim_qk + spec.head_dim_v);
  const double warps_per_scheduler = blocks * t.warps / kSchedulers;
  const double mma = work.mma * kClocksPerMma * warps_per_scheduler;
  const double issue =
      (work.mma + (kIssuesPerElement + programs) * elements + work.shared_bytes / 512 +
       kIssuesPerCopy * bytes / 16 / kernel.threads() + kIssuesPerStep) *
      warps_per_scheduler;
  const double shared = blocks * (work.shared_bytes * t.warps + bytes) / kSharedBytesPerClock;
  const double waited =
      (kBarrierClocks + (t.slots == 1 ? kNothingInFlight : 0) + 0.4 * work.mma * kClocksPerMma) /
      blocks / std::max(1.0, t.warps / kSchedulers);
  const double busiest = std::max({mma, issue, shared});
  return busiest + kOverlap * (mma + issue + shared - busiest) / 2 + waited;
}

MmaGradientKernel keys_kernel(const KernelSpec& spec, const Config& c, BackwardMakes makes) {
  return {
      makes,
      {as_int(c, "key_block_n"), as_int(c, "key_block_m"), as_int(c, "key_warps"),
       as_int(c, "q_slots"), spec.head_dim_qk, spec.head_dim_v, makes != BackwardMakes::kDv, true},
      as_int(c, "key_blocks_per_sm")};
}

}  // namespace

int MmaGradientKernel::accumulators() const {
  const int columns =
      (makes_first() ? tile.head_dim_qk : 0) + (makes_second() ? tile.head_dim_v : 0);
  const int of_step = tile.step_rows * (makes_first() ? 2 : 1);
  return backward_sm80_layout(tile).row_tiles * (columns + of_step) / 2;
}

MmaGradientKernel mma_rows_kernel(const KernelSpec& spec, const Config& c) {
  return {BackwardMakes::kDq,
          {as_int(c, "block_m"), as_int(c, "block_n"), as_int(c, "warps"), as_int(c, "kv_slots"),
           spec.head_dim_qk, spec.head_dim_v, true, false},
          as_int(c, "blocks_per_sm")};
}

std::vector<MmaGradientKernel> mma_keys_kernels(const KernelSpec& spec, const Config& c) {
  const bool k = asks(spec.backward.gradients, Gradients::kK),
             v = asks(spec.backward.gradients, Gradients::kV);
  if (k && v && as_int(c, "split_kv") != 0)
    return {keys_kernel(spec, c, BackwardMakes::kDk), keys_kernel(spec, c, BackwardMakes::kDv)};
  if (!k && !v) return {};
  return {keys_kernel(spec, c,
                      k && v ? BackwardMakes::kDkDv
                      : k    ? BackwardMakes::kDk
                             : BackwardMakes::kDv)};
}

std::vector<MmaGradientKernel> mma_gradient_kernels(const KernelSpec& spec, const Config& c) {
  std::vector<MmaGradientKernel> kernels;
  if (asks(spec.backward.gradients, Gradients::kQ)) kernels.push_back(mma_rows_kernel(spec, c));
  for (const MmaGradientKernel& one : mma_keys_kernels(spec, c)) kernels.push_back(one);
  return kernels;
}

int64_t mma_gradient_tiles(const MmaGradientKernel& kernel, const Shape& shape) {
  const int64_t length = kernel.of_rows() ? shape.seqlen_q : shape.seqlen_kv;
  const int64_t heads = kernel.of_rows() ? shape.num_heads_q : shape.num_heads_kv;
  return (length + kernel.tile.stay_rows - 1) / kernel.tile.stay_rows * heads * shape.batch;
}

double mma_gradient_clocks(const MmaGradientKernel& kernel, const KernelSpec& spec,
                           const Shape& shape, const DeviceFacts& device) {
  constexpr int64_t kSamples = 64;
  const int64_t length = kernel.of_rows() ? shape.seqlen_q : shape.seqlen_kv;
  const int64_t blocks = (length + kernel.tile.stay_rows - 1) / kernel.tile.stay_rows;
  if (blocks == 0) return 0;
  const int64_t sampled = std::min(blocks, kSamples);
  double sum = 0, longest = 0;
  for (int64_t i = 0; i < sampled; ++i) {
    const int64_t block = sampled == blocks ? i : i * (blocks - 1) / (sampled - 1);
    const auto steps =
        static_cast<double>(gradient_steps(kernel, spec, shape, block * kernel.tile.stay_rows));
    sum += steps;
    longest = std::max(longest, steps);
  }
  const double mean = sum / static_cast<double>(sampled);
  const auto tiles = static_cast<double>(mma_gradient_tiles(kernel, shape));
  const double resident =
      std::min<double>(kernel.blocks_per_sm, std::max(1.0, std::floor(tiles / device.sm_count)));
  const double step = step_clocks(kernel, spec, resident);
  const double rounds = tiles / (device.sm_count * resident) + 0.3;
  return std::max(longest * step + kTileClocks, rounds * (mean * step + kTileClocks));
}

}  // namespace attune
