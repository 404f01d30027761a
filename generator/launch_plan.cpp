// SPDX-License-Identifier: Apache-2.0
// Joins structure and sizes, and places tensors in the workspace; see launch_plan.hpp.
#include "generator/launch_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

// Persistent blocks add the grid's extent to the number of the last tile, in an int.
constexpr int64_t kMostTiles = std::numeric_limits<int>::max() - (1 << 20);

void check_counts(const char* what, size_t in_structure, size_t in_sizes) {
  if (in_structure == in_sizes) return;
  throw Error(ErrorCode::kInternal, fmt::format("a launch's structure has {} {}, its sizes have "
                                                "{}; the number may depend only on spec and config",
                                                in_structure, what, in_sizes));
}

void check_tensor_maps(const LaunchStructure& structure) {
  for (const StepStructure& step : structure.steps)
    for (const TensorMapPlan& map : step.tensor_maps)
      if (const Workspace* tensor = std::get_if<Workspace>(&map.tensor);
          tensor != nullptr && tensor->index >= structure.workspace.size())
        throw Error(ErrorCode::kInternal,
                    fmt::format("a tensor map of {} sees tensor {} of a workspace that has {}",
                                step.entry, tensor->index, structure.workspace.size()));
}

void place_tensors(const LaunchStructure& structure, const LaunchSizes& sizes, LaunchPlan* plan) {
  for (size_t i = 0; i < structure.workspace.size(); ++i) {
    const WorkspaceTensor& tensor = structure.workspace[i];
    if (tensor.zeroed && plan->zeroed_bytes < plan->workspace_bytes)
      throw Error(ErrorCode::kInternal,
                  fmt::format("workspace tensor {} is zeroed, but comes after one that is not",
                              tensor.name));
    const int64_t offset =
        (plan->workspace_bytes + tensor.alignment - 1) / tensor.alignment * tensor.alignment;
    const int64_t bytes = sizes.workspace[i].count() * dtype_bytes(tensor.dtype);
    plan->workspace.push_back({tensor, sizes.workspace[i], offset});
    plan->workspace_bytes =
        offset + (bytes + tensor.alignment - 1) / tensor.alignment * tensor.alignment;
    if (tensor.zeroed) plan->zeroed_bytes = plan->workspace_bytes;
  }
}

}  // namespace

std::vector<ArgumentPart> attention_parts(const KernelSpec& spec) {
  std::vector<ArgumentPart> parts;
  if (has_score_args(spec)) parts.push_back(ArgumentPart::kScores);
  if (spec.dropout > 0) parts.push_back(ArgumentPart::kDropout);
  parts.push_back(ArgumentPart::kBase);
  if (is_narrow(spec) || spec.max_logits) parts.push_back(ArgumentPart::kScales);
  return parts;
}

const void* part_of(const KernelArguments& arguments, ArgumentPart part) {
  switch (part) {
    case ArgumentPart::kMap:
      return &arguments.map;
    case ArgumentPart::kScores:
      return &arguments.scores;
    case ArgumentPart::kBase:
      return static_cast<const AttentionArgs*>(&arguments);
    case ArgumentPart::kScales:
      return &arguments.scales;
    case ArgumentPart::kGradients:
      return &arguments.gradients;
    case ArgumentPart::kDropout:
      return &arguments.dropout;
    case ArgumentPart::kCache:
      return &arguments.cache;
    case ArgumentPart::kAppend:
      return &arguments.append;
    case ArgumentPart::kRound:
      return &arguments.round;
    case ArgumentPart::kLists:
      return &static_cast<const ListedArguments&>(arguments).lists;
    case ArgumentPart::kGroups:
      return &static_cast<const GroupedArguments&>(arguments).groups;
  }
  return nullptr;
}

bool LaunchPlan::uses_tensor_maps() const {
  return std::any_of(steps.begin(), steps.end(),
                     [](const LaunchStep& step) { return !step.tensor_maps.empty(); });
}

BlockMapArgs LaunchPlan::map_args(void* workspace_begin, MapLists lists) const {
  if (!map) return {};
  const PlacedTensor& all = workspace[*map];
  const int rows = static_cast<int>(all.rows);
  const int heads = lists.by_head ? static_cast<int>(all.heads) : 1;
  const int batch = lists.by_batch ? static_cast<int>(all.batch) : 1;
  return {.lists = reinterpret_cast<int*>(static_cast<char*>(workspace_begin) + all.offset),
          .batch_step = batch > 1 ? rows * heads : 0,
          .head_step = heads > 1 ? rows : 0,
          .list_words = static_cast<int>(all.columns),
          .by_head = lists.by_head ? 1 : 0,
          .num_lists = rows * heads * batch};
}

LaunchPlan launch_plan(const LaunchStructure& structure, const LaunchSizes& sizes) {
  check_counts("steps", structure.steps.size(), sizes.steps.size());
  check_counts("workspace tensors", structure.workspace.size(), sizes.workspace.size());
  if (structure.main_step >= structure.steps.size())
    throw Error(ErrorCode::kInternal, fmt::format("the main step is {}, and there are {} steps",
                                                  structure.main_step, structure.steps.size()));
  check_tensor_maps(structure);
  LaunchPlan plan;
  plan.steps.clear();
  for (size_t i = 0; i < structure.steps.size(); ++i) {
    plan.steps.push_back({structure.steps[i], sizes.steps[i]});
    for (const ArgumentPart part : structure.steps[i].parts) {
      plan.takes_cache |= part == ArgumentPart::kCache;
      plan.takes_append |= part == ArgumentPart::kAppend;
      plan.takes_lists |= part == ArgumentPart::kLists;
      plan.takes_groups |= part == ArgumentPart::kGroups;
    }
  }
  plan.main_step = structure.main_step;
  plan.keeps_score_units = structure.keeps_score_units;
  plan.map = structure.map;
  plan.rounds = structure.rounds;
  plan.round_sizes = sizes.rounds;
  if (plan.map && *plan.map >= structure.workspace.size())
    throw Error(ErrorCode::kInternal,
                fmt::format("the map is tensor {}, and the workspace has {} tensors", *plan.map,
                            structure.workspace.size()));
  place_tensors(structure, sizes, &plan);
  return plan;
}

int tile_count(int64_t tiles) {
  if (tiles > kMostTiles)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} work tiles are too many for one launch; must be at most {}", tiles,
                            kMostTiles));
  return static_cast<int>(tiles);
}

unsigned grid_extent(int64_t blocks) {
  return static_cast<unsigned>(std::max(1, tile_count(blocks)));
}

}  // namespace attune
