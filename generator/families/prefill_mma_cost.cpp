// SPDX-License-Identifier: Apache-2.0
// Rough time of an mma.sync config in clocks, to rank candidates before any is compiled: what one step of a warp takes from each
// shared resource of a multiprocessor, how well the resident warps cover its latency, and how tiles fill the device.
// Rates are those of sm_80 to sm_90; only their ratios matter.
#include <algorithm>

#include "generator/families/prefill_mma.hpp"

namespace attune {
namespace {

constexpr double kClocksPerMma = 8.0;            // m16n8k16 on one of four schedulers
constexpr double kSchedulers = 4.0;
constexpr double kSharedBytesPerClock = 128.0;
constexpr double kIssuesPerScore = 4.5;          // FMA, exp2, add, half a conversion and half a maximum, one masked compare
constexpr double kIssuesPerCopy = 5.0;
constexpr double kBarrierClocks = 60.0;
constexpr double kLoadLatency = 700.0;           // exposed by a ring that cannot run ahead
constexpr double kTileClocks = 3000.0;           // start, first loads and epilogue of a tile

struct StepCost {
  double throughput = 0;  // clocks of the multiprocessor that one warp's step takes from the busiest resource
  double latency = 0;     // clocks that the step takes one warp alone
};

StepCost step_cost(const KernelSpec& spec, const Arch& arch, const MmaConfig& c) {
  const double rows = c.row_tiles();
  const double steps_qk = (spec.head_dim_qk + 15) / 16;
  const double products = rows * (c.block_n / 8 * steps_qk + c.block_n / 16.0 * spec.head_dim_v / 8);
  const double scores = rows * c.block_n / 8 * 4;
  const double k_bytes = c.block_n * prefill_sm80_row_bytes(spec.head_dim_qk);
  const double v_bytes = c.block_n * prefill_sm80_row_bytes(spec.head_dim_v);
  const double q_bytes = c.q_place == kQShared ? rows * 16 * prefill_sm80_row_bytes(spec.head_dim_qk) : 0;
  const double read_bytes = k_bytes + v_bytes + q_bytes;
  const double copies = (k_bytes + v_bytes) / 16 / c.threads();
  const double mma = products * kClocksPerMma * (arch.compute_capability < 80 ? 2 : 1);
  const double issue = products + kIssuesPerScore * scores + read_bytes / 512 + kIssuesPerCopy * copies;
  const double shared = (read_bytes + (k_bytes + v_bytes) / c.warps) / kSharedBytesPerClock;
  const int barriers = c.share_kv || c.stages == 1 ? 2 : 1;
  const int slots = c.share_kv ? c.stages : 2 * c.stages;
  const double exposed = slots == 1 ? 2 * kLoadLatency : (slots == 2 ? 0.15 * kLoadLatency : 0);
  return {std::max({mma / kSchedulers, issue / kSchedulers, shared}), mma + scores * kIssuesPerScore + barriers * kBarrierClocks + exposed};
}

// Blocks of columns that the rows [first, first + rows) visit.
double blocks_visited(const KernelSpec& spec, const MmaConfig& c, const Shape& shape, int64_t first) {
  const int64_t offset = spec.mask == Mask::kCausalTopLeft ? 0 : shape.seqlen_kv - shape.seqlen_q;
  const int64_t last_row = std::min(first + c.block_m, shape.seqlen_q) - 1;
  int64_t begin = 0;
  int64_t end = shape.seqlen_kv;
  if (spec.mask != Mask::kNone) end = std::min(end, last_row + offset + 1);
  if (spec.mask == Mask::kNone && spec.window_right >= 0) end = std::min(end, last_row + offset + spec.window_right + 1);
  if (spec.window_left >= 0) begin = std::max<int64_t>(0, first + offset - spec.window_left);
  if (end <= begin) return 0;
  return static_cast<double>((end - 1) / c.block_n - begin / c.block_n + 1);
}

}  // namespace

double mma_predicted_cost(const KernelSpec& spec, const Arch& arch, const MmaConfig& c, const Shape& shape, const DeviceFacts& device) {
  const StepCost step = step_cost(spec, arch, c);
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
  const double slots = static_cast<double>(device.sm_count) * c.min_blocks;
  // Resident warps share a multiprocessor: a step of all of them takes the longer of what they use up and what one must wait.
  const double resident = std::min<double>(c.min_blocks, std::max(1.0, tiles / device.sm_count));
  const double round = std::max(step.throughput * resident * c.warps + 0.25 * step.latency, step.latency);
  const double waves = tiles / slots;
  const double filled = tiles_differ_in_length(spec) ? std::max(waves, longest / std::max(average, 1.0)) + 0.15 : std::max(1.0, waves + 0.3);
  return filled * (average * round + kTileClocks * (c.persistent ? 0.9 : 1.0));
}

}  // namespace attune
