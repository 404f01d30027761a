// SPDX-License-Identifier: Apache-2.0
// The map of blocks, and the largest logits, in launches; see prefill_parts.hpp. A program that
// does not depend on the batch entry, or the head, has one map for all of them.
#include "generator/families/prefill/prefill_parts.hpp"

#include <algorithm>

#include "generator/score/analysis/dependence.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

constexpr const char* kMapEntry = "attune_map_blocks";
constexpr unsigned kLogitThreads = 128;

bool depends_on(const KernelSpec& spec, score::Dependences what) {
  return asks_map(spec) || (score::dependences_of(mask_program(spec).program).back() & what) != 0;
}

}  // namespace

void add_block_map(const KernelSpec& spec, LaunchStructure* launch) {
  if (!has_mask_program(spec)) return;
  std::vector<ArgumentPart>& parts = launch->steps[launch->main_step].parts;
  parts.insert(parts.begin(), ArgumentPart::kMap);
  launch->map = launch->workspace.size();
  launch->workspace.push_back({.name = "block_lists"});
  launch->steps.insert(
      launch->steps.begin(),
      {.entry = kMapEntry,
       .parts = {ArgumentPart::kMap, ArgumentPart::kScores, ArgumentPart::kBase},
       .threads = static_cast<unsigned>(asks_map(spec) ? kGranuleThreads : kMapThreads),
       .shared_bytes = kMapChunk * sizeof(int)});
  ++launch->main_step;
}

void add_block_map(const KernelSpec& spec, const Shape& shape, const MapShape& map,
                   LaunchSizes* sizes) {
  if (!has_mask_program(spec)) return;
  const int64_t blocks = std::max<int64_t>((shape.seqlen_kv + map.block_n - 1) / map.block_n, 1);
  const TensorExtents lists{.columns = 1 + blocks,
                            .rows = std::max<int64_t>(map.row_blocks, 1),
                            .heads = depends_on(spec, score::kOnHead) ? map.head_tiles : 1,
                            .batch = depends_on(spec, score::kOnBatch) ? shape.batch : 1};
  sizes->workspace.push_back(lists);
  sizes->steps.insert(sizes->steps.begin(),
                      {.grid_x = grid_extent(lists.rows * lists.heads * lists.batch)});
}

void add_max_logits(const KernelSpec& spec, LaunchStructure* launch) {
  if (!spec.max_logits) return;
  launch->steps.insert(launch->steps.begin(),
                       {.entry = "attune_begin_logits",
                        .parts = {ArgumentPart::kBase, ArgumentPart::kScales},
                        .threads = kLogitThreads});
  ++launch->main_step;
}

void add_max_logits(const KernelSpec& spec, LaunchSizes* sizes) {
  if (spec.max_logits) sizes->steps.insert(sizes->steps.begin(), {.grid_x = 1});
}

}  // namespace attune
