// SPDX-License-Identifier: Apache-2.0
// LaunchPlan: everything that one call launches, as a list of steps over operands and workspace
// tensors. A family describes a plan in two halves. The structure (kernels of the image, arguments
// of each) depends on spec and config, as the image does, so one loaded kernel serves all shapes.
// The sizes (grids, extents) depend on the shape and the device as well. The family chooses the
// main step. Passes that prepare operands, join splits or finish a gradient are ordinary steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/problem/problem.hpp"
#include "templates/shared/listed_arguments.h"

namespace attune {

// Name of the main kernel in every template, and in images made before 0.3.
inline constexpr const char* kEntryName = "attune_kernel";

// Returns the name of a step's function in an image whose main function is `main`:
// "attune_prefill_sm90_fp8_d128_transpose" for step "attune_transpose". Images made before 0.3 have
// the templates' names.
inline std::string entry_in(const std::string& main, const std::string& step) {
  if (main == kEntryName) return step;
  if (step == kEntryName) return main;
  return main + step.substr(std::string_view("attune").size());
}

// The parts of KernelArguments. On a GPU, a kernel's parameters are its parts in this order, then
// its tensor maps.
enum class ArgumentPart : int {
  kMap,
  kScores,
  kDropout,
  kBase,
  kScales,
  kGradients,
  kCache,
  kAppend,
  kRound,
  kLists,
  kGroups
};
// Returns the argument parts of an attention kernel: kScales if it has narrow operands or writes
// the largest logits, kScores if it has score features. Families with a map of blocks
// (prefill/prefill_parts.hpp) add kMap.
std::vector<ArgumentPart> attention_parts(const KernelSpec& spec);
// `arguments` must be ListedArguments for the part kLists, GroupedArguments for kGroups.
const void* part_of(const KernelArguments& arguments, ArgumentPart part);

enum class Operand : int { kQ, kK, kV, kO, kDout, kDq, kDk, kDv };

// A tensor that one step writes and a later step reads, as an index into
// LaunchStructure::workspace.
struct Workspace {
  size_t index = 0;
  bool operator==(const Workspace&) const = default;
};

// A TMA descriptor to encode at launch, for boxes of one tensor. An operand has the dimensions
// {head_dim, seqlen, head, batch}, innermost first. If V's keys are contiguous (v_layout
// transposed), they are {seqlen, head_dim, head, batch}. A workspace tensor has its own extents.
struct TensorMapPlan {
  std::variant<Operand, Workspace> tensor = Operand::kQ;
  int box_columns = 64;     // of the innermost dimension, in elements; at most 128 bytes
  int box_rows = 64;        // of the next dimension
  int swizzle_bytes = 128;  // 0, 32, 64 or 128
  int box_heads = 1;        // consecutive heads; each has box_rows rows, one head after the other
  // L2 fetches 256 bytes if a box needs any of them. That is slower for rows that are read only
  // once, for example (templates/cuda/decode_sm80/LOG.md).
  bool fetches_around = true;
  // K or V of a cache: {head_dim, keys of a page or slot, head, page or slot}
  bool of_pages = false;
};

// One kernel of the image. On a CPU only `entry` is used: every thread of the device calls it.
struct StepStructure {
  std::string entry = kEntryName;
  std::vector<ArgumentPart> parts{ArgumentPart::kBase};
  unsigned threads = 1;
  unsigned shared_bytes = 0;
  unsigned cluster = 1;
  bool early = false;  // may start before the previous step ends, and waits inside (griddepcontrol)
  std::vector<TensorMapPlan> tensor_maps{};
};

// A tensor, contiguous in the workspace, at a multiple of `alignment` bytes.
struct WorkspaceTensor {
  std::string name;  // "v_transposed"
  Dtype dtype = Dtype::kFp32;
  bool zeroed = false;  // zero before the first launch; kernels reset it to zero
  int64_t alignment = 256;
};

struct LaunchStructure {
  std::vector<StepStructure> steps = std::vector<StepStructure>(1);  // in stream order
  size_t main_step = 0;
  std::vector<WorkspaceTensor> workspace{};  // zeroed tensors first
  // True if the score stage returns scores in units of softmax_scale, like kernels without a score
  // stage (score::keeps_units).
  bool keeps_score_units = false;
  // The workspace tensor of ArgumentPart::kMap: lists of words, {words, row blocks, heads, batch}.
  // The first step writes it, with one thread block per list of the call (BlockMapArgs::num_lists).
  std::optional<size_t> map{};
  // Steps [begin, end) are launched in rounds (LaunchSizes::rounds), one round after the other.
  struct Rounds {
    size_t begin = 0, end = 0;
  } rounds{};
};

// The numbers of lists in a call's map: one for all batch entries, or for all heads, if the masks
// do not depend on them.
struct MapLists {
  bool by_batch = true;
  bool by_head = true;
};

struct StepSize {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;  // grid_x 0: the step is not launched
  int num_tiles = 0;  // AttentionArgs::num_tiles, if the step numbers its work tiles
};

// A tensor's extents in elements, innermost first.
struct TensorExtents {
  int64_t columns = 0, rows = 1, heads = 1, batch = 1;
  int64_t count() const { return columns * rows * heads * batch; }
};

struct LaunchSizes {
  std::vector<StepSize> steps = std::vector<StepSize>(1);  // as LaunchStructure::steps
  std::vector<TensorExtents> workspace{};                  // as LaunchStructure::workspace
  // `heads` is the number of K heads, or of rows of Q, over all batch entries. `of_round` is the
  // number per round; the last round may have fewer. Sizes of steps in rounds are for a full round,
  // with equally many tiles per head.
  struct Rounds {
    int heads = 1, of_round = 1;
    int stride = 0;  // as RoundArgs::stride
  } rounds{};
};

struct LaunchStep : StepStructure, StepSize {};
struct PlacedTensor : WorkspaceTensor, TensorExtents {
  int64_t offset = 0;  // bytes
};

struct LaunchPlan {
  std::vector<LaunchStep> steps = std::vector<LaunchStep>(1);
  size_t main_step = 0;
  std::vector<PlacedTensor> workspace;
  int64_t workspace_bytes = 0;  // given by the caller of run, 256-byte aligned
  int64_t zeroed_bytes = 0;     // leading part that must be zero before the first launch
  bool keeps_score_units = false;
  std::optional<size_t> map{};  // as LaunchStructure::map
  LaunchStructure::Rounds rounds{};
  LaunchSizes::Rounds round_sizes{};

  // Calls launch(step number, arguments) for each launch of a call, in stream order. `arguments`
  // contains the tiles and the round of that launch.
  template <class Launch>
  void each_launch(KernelArguments& arguments, const Launch& launch) const {
    const auto one = [&](size_t i) {
      arguments.num_tiles = steps[i].num_tiles;
      launch(i, arguments);
    };
    size_t i = 0;
    for (; i < rounds.begin; ++i) one(i);
    for (int first = 0; rounds.end > rounds.begin && first < round_sizes.heads;
         first += round_sizes.of_round) {
      arguments.round = {first, std::min(round_sizes.of_round, round_sizes.heads - first),
                         round_sizes.stride};
      for (i = rounds.begin; i < rounds.end; ++i) {
        arguments.num_tiles = steps[i].num_tiles / round_sizes.of_round * arguments.round.heads;
        launch(i, arguments);
      }
    }
    for (i = rounds.end; i < steps.size(); ++i) one(i);
  }

  LaunchStep& main() { return steps[main_step]; }
  const LaunchStep& main() const { return steps[main_step]; }
  bool takes_cache = false;   // a step takes ArgumentPart::kCache
  bool takes_lists = false;   // a step takes ArgumentPart::kLists
  bool takes_append = false;  // a step takes ArgumentPart::kAppend
  bool takes_groups = false;  // a step takes ArgumentPart::kGroups

  bool uses_tensor_maps() const;
  // Returns the kernel argument for the map, in a workspace that begins at `workspace_begin`. All 0
  // for a plan without a map.
  BlockMapArgs map_args(void* workspace_begin, MapLists lists) const;
};

// Joins the two halves of a plan. Throws kInternal if they do not match.
LaunchPlan launch_plan(const LaunchStructure& structure, const LaunchSizes& sizes);

// Return a number of tiles, or of blocks of a grid, in the type that a launch uses. Throw
// kUnsupported if the number does not fit.
int tile_count(int64_t tiles);
unsigned grid_extent(int64_t blocks);  // at least 1

// Returns the dropout argument from the call's values (null: seed and offset 0) and the problem's
// dropout.
inline DropoutArgs dropout_args(const Problem& problem, const DropoutArgs* given) {
  DropoutArgs args = given == nullptr ? DropoutArgs{} : *given;
  args.keep(std::clamp(static_cast<unsigned>(std::lround(256 * (1 - problem.dropout))), 1U, 256U));
  return args;
}

}  // namespace attune
