// SPDX-License-Identifier: Apache-2.0
// See head_parts.hpp.
#include "generator/families/backward/sm90/head_parts.hpp"

#include <algorithm>
#include <functional>

#include "generator/families/backward/gradient_steps.hpp"
#include "generator/families/backward/sm90/gradient_clocks.hpp"
#include "templates/shared/layouts/backward_head_parts.h"

namespace attune {
namespace {

constexpr const char* kKnob = "split_heads";

constexpr int64_t kSamples = 64;   // blocks of a head of K whose steps are counted
constexpr int64_t kMostPerSm = 8;  // work tiles; with more, parts even out nothing
// The start of a work tile, and its sums, which are written and read, in steps of 64 rows and 128
// keys. Sums and steps both grow with head dims.
constexpr double kStartSteps = 5;
constexpr double kSlack = 0.5;  // see last_end()

// Returns the steps of evenly drawn blocks of keys, over all heads of the group.
std::vector<double> block_steps(const BackwardKernel& kernel, const KernelSpec& spec,
                                const Shape& shape, int64_t blocks) {
  std::vector<double> all;
  const int64_t sampled = std::min(blocks, kSamples);
  for (int64_t i = 0; i < sampled; ++i) {
    const int64_t block = sampled == blocks ? i : i * (blocks - 1) / (sampled - 1);
    all.push_back(
        static_cast<double>(gradient_steps(kernel, spec, shape, block * kernel.tile.stay_rows)));
  }
  std::sort(all.begin(), all.end(), std::greater<>());
  return all;
}

// Returns when the last multiprocessor ends, in steps. `steps`: of blocks, over all heads.
double end_of_parts(const std::vector<double>& steps, double start, int64_t tiles, int parts,
                    int ratio, int sm_count) {
  std::vector<double> longest = steps;  // some parts have one head more than others
  const int most_heads = (ratio + parts - 1) / parts;
  double sum = 0;
  for (double& one : longest) {
    sum += one / parts + start;
    one = one * most_heads / ratio + start;
  }
  return last_end(longest, sum / static_cast<double>(steps.size()), tiles, sm_count, kSlack);
}

}  // namespace

void add_head_knob(const KernelSpec& spec, std::vector<Knob>* knobs) {
  if (spec.gqa_ratio > 1 && makes_keys(spec))
    knobs->push_back({.name = kKnob,
                      .values = {0, 1},
                      .meaning = "1: blocks of keys take a part of the heads of q of a group",
                      .is_new = true});
}

bool splits_heads(const Config& config) { return config.get(kKnob, 0) != 0; }

void add_head_constant(const Config& config, std::vector<Constant>* constants) {
  if (splits_heads(config)) constants->push_back(bool_constant("kHeadParts", true));
}

HeadSplit head_split(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                     const DeviceFacts& device) {
  const int64_t groups = shape.num_heads_kv * shape.batch;
  if (!kernel.splits_heads || groups == 0 || shape.seqlen_kv == 0) return {};
  const int64_t keys = kernel.tile.stay_rows, blocks = (shape.seqlen_kv + keys - 1) / keys;
  const std::vector<double> steps = block_steps(kernel, spec, shape, blocks);
  const double start = kStartSteps * kTwoWarpgroups * kWarpgroupRows /
                       static_cast<double>(keys * kernel.tile.step_rows);
  const int64_t most = kMostPerSm * device.sm_count / (blocks * groups);
  int best = 1;
  double whole = 0, least = 0;
  for (int parts = 1; parts <= std::max<int64_t>(1, std::min<int64_t>(spec.gqa_ratio, most));
       ++parts) {
    const double end =
        end_of_parts(steps, start, blocks * groups * parts, parts, spec.gqa_ratio, device.sm_count);
    if (parts == 1) whole = end;
    if (parts == 1 || end < least) best = parts, least = end;
  }
  return {best, least / whole};
}

int keys_columns(const KernelSpec& spec) {
  return (makes(spec, Gradients::kK) ? spec.head_dim_qk : 0) +
         (makes(spec, Gradients::kV) ? spec.head_dim_v : 0);
}

void add_join(const Config& config, LaunchStructure* structure) {
  if (!splits_heads(config)) return;
  structure->workspace.push_back({.name = "slices"});
  structure->steps.push_back({.entry = "attune_join",
                              .parts = {ArgumentPart::kBase, ArgumentPart::kGradients},
                              .threads = kWarpgroupThreads,
                              .early = true});
}

void add_join(const BackwardKernel& keys, const KernelSpec& spec, const Shape& shape,
              const DeviceFacts& device, LaunchSizes* sizes) {
  if (!keys.splits_heads) return;
  const int columns = keys_columns(spec), parts = head_split(keys, spec, shape, device).parts;
  const int64_t blocks = (shape.seqlen_kv + kWarpgroupRows - 1) / kWarpgroupRows;
  sizes->workspace.push_back(
      {.columns = backward_slice_floats(columns),
       .rows = backward_slice_blocks(static_cast<int>(shape.seqlen_kv), keys.tile.stay_rows),
       .heads = shape.num_heads_kv * parts,
       .batch = shape.batch});
  sizes->steps.push_back({.grid_x = grid_extent(shape.num_heads_kv * shape.batch * blocks),
                          .grid_y = static_cast<unsigned>(backward_join_blocks(columns)),
                          .num_tiles = tile_count(backward_tiles(keys, shape) * parts)});
}

}  // namespace attune
