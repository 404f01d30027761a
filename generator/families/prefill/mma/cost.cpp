// SPDX-License-Identifier: Apache-2.0
// Estimates the clocks of an mma.sync config, to rank candidates before any is compiled. One step
// (a block of columns) of all resident warps takes tensor cores, issue slots and shared memory,
// which overlap in part; tiles then fill the device. The constants are fitted to configs measured
// on an H200 (head dims 64, 128, 256, no mask).
#include <algorithm>
#include <cmath>

#include "generator/families/prefill/mma/prefill_mma.hpp"

#include "generator/core/problem/visibility.hpp"

namespace attune {
namespace {

constexpr double kClocksPerMma = 6.6;  // m16n8k16 on one of four schedulers
constexpr double kSchedulers = 4.0;
constexpr double kSharedBytesPerClock = 128.0;
// FMA, exp2, add, half a conversion, half a maximum, half a compare
constexpr double kIssuesPerScore = 4.5;
constexpr double kIssuesPerRounded = 1.0;  // per fp32 element that becomes one of tf32,
constexpr double kIssuesPerSplit = 3.0;    // or two
constexpr double kIssuesPerCopy = 6.0;
constexpr double kIssuesPerStep = 40.0;
// tensor cores and issue slots overlap badly; both overlap well with shared memory
constexpr double kIssueWeight = 1.2;
constexpr double kIssueNorm = 1.25;
constexpr double kSharedWeight = 0.8;
// with a warp's wait there, shared by the warps of a scheduler
constexpr double kBarrierClocks = 400.0;
constexpr double kLatencyWeight = 0.5;
constexpr double kNothingInFlight = 1400.0;  // for the loads of a ring of one slot
constexpr double kOneBlock = 1.06;           // no other block works while this one waits
constexpr double kTileClocks = 3000.0;       // start, first loads and epilogue of a tile

// Returns the instructions that make tf32 operands: K and V in each warp, P, and Q if numbers are
// split.
double issues_of_tf32(const KernelSpec& spec, const MmaConfig& c, double products) {
  if (spec.dtype_q != Dtype::kFp32) return 0;
  const double rows = c.row_tiles(), of_k_and_v = 2 * products / rows,
               of_p = rows * c.block_n / 2.0;
  if (spec.fp8.accuracy != Accuracy::kSplit) return kIssuesPerRounded * (of_k_and_v + of_p);
  return kIssuesPerSplit * (of_k_and_v + of_p + rows * spec.head_dim_qk / 2.0);
}

// Returns the clocks in which `blocks` blocks on one multiprocessor do one step each.
double step_clocks(const KernelSpec& spec, const Arch& arch, const MmaConfig& c, double blocks) {
  const double rows = c.row_tiles();
  const double depth = 32.0 / dtype_bytes(spec.dtype_q);  // elements that one mma.sync sums
  const double steps_qk = std::ceil(spec.head_dim_qk / depth);
  const double products =
      rows * (c.block_n / 8.0 * steps_qk + c.block_n / depth * spec.head_dim_v / 8);
  const double scores = rows * c.block_n / 8.0 * 4;
  const double kv_bytes =
      c.block_n * (mma_row_bytes(spec, spec.head_dim_qk) + mma_row_bytes(spec, spec.head_dim_v));
  const double q_bytes =
      c.q_place == kQShared ? rows * 16 * mma_row_bytes(spec, spec.head_dim_qk) : 0;
  const double times = spec.fp8.accuracy == Accuracy::kSplit ? 3 : 1;  // products for one
  const double mma = times * products * kClocksPerMma * (arch.compute_capability < 80 ? 2 : 1);
  const double issue = times * products + issues_of_tf32(spec, c, products) +
                       kIssuesPerScore * scores + (kv_bytes + q_bytes) / 512 +
                       kIssuesPerCopy * kv_bytes / 16 / c.threads() + kIssuesPerStep;
  const double per_scheduler = blocks * c.warps / kSchedulers;
  const double barriers = c.share_kv || c.kv_slots == 1 ? 2 : 1;
  const double waited = kBarrierClocks * barriers +
                        (c.share_kv && c.kv_slots == 1 ? kNothingInFlight : 0) +
                        kLatencyWeight * (mma + 4 * scores);
  const double compute = std::pow(std::pow(mma * per_scheduler, kIssueNorm) +
                                      std::pow(kIssueWeight * issue * per_scheduler, kIssueNorm),
                                  1 / kIssueNorm) +
                         waited / per_scheduler;
  const double shared =
      kSharedWeight * blocks * ((kv_bytes + q_bytes) * c.warps + kv_bytes) / kSharedBytesPerClock;
  return std::hypot(compute, shared) * (blocks > 1 ? 1.0 : kOneBlock);
}

// Returns the blocks of columns that the rows [first, first + rows) visit.
double blocks_visited(const KernelSpec& spec, const MmaConfig& c, const Shape& shape,
                      int64_t first) {
  const int64_t last_row = std::min(first + c.block_m, shape.seqlen_q) - 1;
  const KeyInterval<int64_t> keys = keys_of_rows(spec, shape, first, last_row);
  if (keys.last < keys.first) return 0;
  const int64_t blocks = keys.last / c.block_n - keys.first / c.block_n + 1;
  return static_cast<double>(blocks);
}

}  // namespace

double mma_predicted_cost(const KernelSpec& spec, const Arch& arch, const MmaConfig& c,
                          const Shape& shape, const DeviceFacts& device) {
  const double heads = static_cast<double>(shape.batch) * shape.num_heads_q;
  const int64_t row_blocks = (shape.seqlen_q + c.block_m - 1) / c.block_m;
  constexpr int64_t kSamples = 64;
  const int64_t stride = std::max<int64_t>(1, row_blocks / kSamples);
  double sum = 0;
  double longest = 0;
  int64_t samples = 0;
  for (int64_t block = row_blocks - 1; block >= 0; block -= stride, ++samples) {
    const double visited = blocks_visited(spec, c, shape, block * c.block_m);
    sum += visited;
    longest = std::max(longest, visited);
  }
  const double tiles = heads * static_cast<double>(row_blocks);
  const double average = samples == 0 ? 0 : sum / static_cast<double>(samples);
  const double slots = static_cast<double>(device.sm_count) * c.blocks_per_sm;
  const double resident =
      std::min<double>(c.blocks_per_sm, std::max(1.0, std::floor(tiles / device.sm_count)));
  const double round = step_clocks(spec, arch, c, resident);
  const double waves = tiles / slots;
  const double filled = tiles_differ_in_length(spec)
                            ? std::max(waves, longest / std::max(average, 1.0)) + 0.15
                            : std::max(1.0, waves + 0.3);
  return filled * (average * round + kTileClocks);
}

}  // namespace attune
