// SPDX-License-Identifier: Apache-2.0
// Family score_gradient_sm80: gradients of biases, slopes and sinks with mma.sync, bf16 and fp16,
// sm_80 and later; fp16 on sm_75. Kernels:
// templates/cuda/score_gradient_sm80/score_gradient_sm80.cu. The problems that score_gradient_sm80
// serves, its knobs and their rules, and its launch.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/op.hpp"
#include "generator/families/backward/gradient_steps.hpp"
#include "generator/families/cheapest_config.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/layouts/backward_prepare_layout.h"
#include "templates/shared/layouts/backward_sm90_layout.h"
#include "templates/shared/layouts/score_gradient_layout.h"

namespace attune {
namespace {

constexpr int kKeyBlockM = 16;       // only pads rows of the workspace to whole tiles
constexpr int64_t kBlocksPerSm = 4;  // wanted per launch, by dividing keys
// Registers for addresses, fragments and row statistics, besides accumulators, and for programs.
constexpr int kOtherRegisters = 80;
constexpr int kRegistersOfPrograms = 48;
constexpr int kRegistersOfSeveralElements = 48;
constexpr int kRegistersOfDerivatives = 32;

static_assert(static_cast<int>(ScoreGradient::kBias) == kOfBias);
static_assert(static_cast<int>(ScoreGradient::kRelativeBias) == kOfRelativeBias);
static_assert(static_cast<int>(ScoreGradient::kAlibi) == kOfAlibi);
static_assert(static_cast<int>(ScoreGradient::kSinks) == kOfSinks);
static_assert(static_cast<int>(Repeats::kBatch) == kRepeatsBatch);
static_assert(static_cast<int>(Repeats::kHeads) == kRepeatsHeads);
static_assert(static_cast<int>(Repeats::kRows) == kRepeatsRows);
static_assert(static_cast<int>(Repeats::kKeys) == kRepeatsKeys);

int gradient_of(const KernelSpec& spec) {
  return static_cast<int>(layout_of(spec.backward.score_gradient));
}
int repeats_of(const KernelSpec& spec) { return static_cast<int>(spec.backward.repeats); }

bool has_scores(const KernelSpec& spec) {
  return spec.backward.score_gradient != ScoreGradient::kSinks;
}
bool has_sums(const KernelSpec& spec) {
  return !writes_dscores(gradient_of(spec), repeats_of(spec));
}

BackwardSm80Tile tile_of(const KernelSpec& spec, const Config& c) {
  return {as_int(c, "block_m"),
          as_int(c, "block_n"),
          as_int(c, "warps"),
          as_int(c, "kv_slots"),
          spec.head_dim_qk,
          spec.head_dim_v,
          true,
          false};
}

// Returns the bytes of shared memory of a block. If dz of a step is summed along lines, it lies
// after the ring.
int shared_bytes(const KernelSpec& spec, const Config& c) {
  return backward_sm80_layout(tile_of(spec, c)).state +
         score_gradient_tile_bytes(gradient_of(spec), repeats_of(spec), as_int(c, "block_m"),
                                   as_int(c, "block_n"));
}

int register_cap(const Arch& arch, const Config& c) {
  return attune::register_cap(arch, 32 * as_int(c, "warps") * as_int(c, "blocks_per_sm"));
}

int registers_needed(const KernelSpec& spec, const Config& c) {
  const int row_tiles = backward_sm80_layout(tile_of(spec, c)).row_tiles;
  return row_tiles * as_int(c, "block_n") + kOtherRegisters + 8 * row_tiles +
         (has_score_stage(spec) ? kRegistersOfPrograms : 0) +
         (has_mask_program(spec) ? kRegistersOfPrograms : 0) +
         (reads_several_elements(spec) ? kRegistersOfSeveralElements : 0) +
         (is_of_load(spec.backward.score_gradient) ? kRegistersOfDerivatives : 0);
}

// True for the smallest config. A spec of many parts has only this one, and spills a little with
// it.
bool is_smallest(const Config& c) {
  return as_int(c, "block_n") == 16 && as_int(c, "block_m") == 16 * as_int(c, "warps") &&
         as_int(c, "blocks_per_sm") == 1;
}

std::optional<std::string> broken(const KernelSpec& spec, const Arch& arch, const Config& c) {
  const int rows = as_int(c, "block_m"), warps = as_int(c, "warps"),
            blocks = as_int(c, "blocks_per_sm");
  if (rows != 16 * warps && rows != 32 * warps)
    return fmt::format("block_m is {}; must be 16 or 32 rows for each of {} warps", rows, warps);
  const int bytes = shared_bytes(spec, c);
  if (bytes > arch.shared_bytes_per_block)
    return fmt::format("the tiles take {} bytes of shared memory; {} has {} per block", bytes,
                       arch.name(), arch.shared_bytes_per_block);
  if (blocks * (bytes + reserved_shared_bytes(arch)) > arch.shared_bytes_per_sm)
    return fmt::format(
        "{} blocks of {} bytes of shared memory do not fit the {} of a multiprocessor", blocks,
        bytes, arch.shared_bytes_per_sm);
  const int needed = registers_needed(spec, c), cap = register_cap(arch, c);
  if (needed <= cap || is_smallest(c)) return std::nullopt;
  return fmt::format("a thread needs about {} registers; {} blocks of {} threads leave it {}",
                     needed, blocks, 32 * warps, cap);
}

class ScoreGradientSm80 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "score_gradient_sm80"; }
  std::string_view source_path() const override {
    return "cuda/score_gradient_sm80/score_gradient_sm80.cu";
  }
  std::string_view knobs_path() const override {
    return "cuda/score_gradient_sm80/score_gradient_sm80_knobs.cuh";
  }
  const Served& serves() const override { return serves_score_gradients(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    const auto values = [&](std::vector<int64_t> all) {
      return values_if(has_scores(spec), std::move(all));
    };
    const std::vector<int64_t> slots =
        copies_ahead(arch) ? std::vector<int64_t>{2, 1, 3} : std::vector<int64_t>{1};
    const std::vector<Knob> knobs{
        {"block_m", values({64, 128, 32}), "stationary rows of q, 16 or 32 per warp"},
        {"block_n", values({64, 32, 16}), "keys per step"},
        {"warps", values({4, 8, 2}), "warps per block"},
        {"kv_slots", values(slots), "steps in shared memory"},
        {"blocks_per_sm", values({1, 2, 3, 4}), "blocks per multiprocessor that registers allow"}};
    if (!has_scores(spec)) return {knobs, {}};
    return {knobs,
            {{"tile",
              {"block_m", "block_n", "warps", "kv_slots", "blocks_per_sm"},
              [=](const Config& c) { return broken(spec, arch, c); }}}};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_config(*this, spec, arch, shape, device);
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    Resources r{.threads = kPrepareThreads, .max_registers = arch.max_registers_per_thread};
    r.shared_bytes = kSumBytes;
    if (!has_scores(spec)) return r;
    r.shared_bytes = shared_bytes(spec, config);
    r.max_registers = register_cap(arch, config);
    return r;
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config&) const override {
    const auto number = [](const char* name, int value) {
      return Constant{"int", name, std::to_string(value)};
    };
    std::vector<Constant> all{{"bool", "kInOrder", "true"},
                              number("kKeyBlockN", 16),
                              number("kKeyBlockM", kKeyBlockM),
                              number("kKeyWarps", 1),
                              number("kQSlots", 1),
                              number("kL2SectionMb", kL2SectionMb)};
    if (has_scores(spec)) all.push_back({"bool", "kHasScores", "true"});
    if (has_sums(spec)) all.push_back({"bool", "kHasSums", "true"});
    return all;
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    std::vector<ArgumentPart> parts{ArgumentPart::kBase, ArgumentPart::kGradients};
    if (spec.dropout > 0) parts.insert(parts.begin() + 1, ArgumentPart::kDropout);
    LaunchStructure all{
        .steps = {{.entry = "attune_prepare", .parts = parts, .threads = kPrepareThreads}},
        .main_step = 1,
        .workspace = {{.name = "row_sums"}, {.name = "partial_sums"}}};
    parts.insert(parts.begin(), ArgumentPart::kScores);
    if (has_scores(spec))
      all.steps.push_back({.parts = parts,
                           .threads = static_cast<unsigned>(32 * as_int(config, "warps")),
                           .shared_bytes = static_cast<unsigned>(shared_bytes(spec, config))});
    if (has_sums(spec))
      all.steps.push_back({.entry = "attune_sum",
                           .parts = parts,
                           .threads = kSumThreads,
                           .shared_bytes = kSumBytes});
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const int block_m = as_int(config, "block_m"), block_n = as_int(config, "block_n");
    const int64_t rows = backward_sm90_rows(shape.seqlen_q, block_m, kKeyBlockM);
    const int64_t heads = shape.num_heads_q;
    const int64_t tiles = (shape.seqlen_q + block_m - 1) / block_m;
    LaunchSizes sizes{
        .steps = {{.grid_x = grid_extent(heads * shape.batch *
                                         backward_prepare_blocks(rows, spec.head_dim_v))}},
        .workspace = {{.columns = rows, .rows = 2, .heads = heads, .batch = shape.batch},
                      {.columns = partial_columns(gradient_of(spec), repeats_of(spec), block_m,
                                                  block_n, shape.seqlen_kv),
                       .rows = tiles,
                       .heads = heads,
                       .batch = shape.batch}}};
    if (has_scores(spec)) sizes.steps.push_back({.grid_x = blocks_of(spec, config, shape, device)});
    if (has_sums(spec)) sizes.steps.push_back(sum_grid(spec, shape));
    return sizes;
  }

  double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                        const Shape& shape, const DeviceFacts&) const override {
    if (!has_scores(spec)) return operand_bytes(problem_of(spec, shape));
    const double block_m = as_int(config, "block_m"), block_n = as_int(config, "block_n");
    const int resident = std::min(
        {4, arch.shared_bytes_per_sm / (shared_bytes(spec, config) + reserved_shared_bytes(arch)),
         arch.registers_per_sm / (32 * as_int(config, "warps") * registers_needed(spec, config))});
    const double warps = std::max(1, resident) * as_int(config, "warps");
    const double waits = (as_int(config, "kv_slots") == 1 ? 12.0 : 6.0) / warps;
    // The sums of a tile lie between barriers of its block; other blocks fill that time. Short
    // steps have as many diagonals as long ones.
    const double sums = has_sums(spec) ? 0.45 / std::max(1, resident) + 16 / block_n : 0.0;
    // A small penalty if blocks_per_sm differs from the number of blocks that fit.
    const double unused = 0.001 * std::abs(resident - as_int(config, "blocks_per_sm"));
    return useful_flops(problem_of(spec, shape)) *
           (1 + 24 / block_m + 8 / block_n + waits + sums + unused);
  }

 private:
  // Returns the number of blocks of a launch. With few tiles, blocks share a tile's keys.
  static unsigned blocks_of(const KernelSpec& spec, const Config& config, const Shape& shape,
                            const DeviceFacts& device) {
    const int64_t block_m = as_int(config, "block_m"), block_n = as_int(config, "block_n");
    const int64_t rows = std::max<int64_t>(1, (shape.seqlen_q + block_m - 1) / block_m);
    // Without batch entries there are no sums, and dscores of a table is zero: attune_sum writes
    // it.
    if (has_sums(spec) && shape.batch == 0) return 0;
    if (has_sums(spec)) return grid_extent(rows * shape.num_heads_q * shape.batch);
    const int64_t heads = repeats(spec.backward.repeats, Repeats::kHeads) ? 1 : shape.num_heads_q;
    const int64_t batch = repeats(spec.backward.repeats, Repeats::kBatch) ? 1 : shape.batch;
    const int64_t tiles = rows * heads * batch;
    if (tiles == 0) return 1;
    const int64_t key_blocks = std::max<int64_t>(1, (shape.seqlen_kv + block_n - 1) / block_n);
    const int64_t wanted = (kBlocksPerSm * device.sm_count + tiles - 1) / tiles;
    return grid_extent(tiles * std::clamp<int64_t>(wanted, 1, key_blocks));
  }

  static StepSize sum_grid(const KernelSpec& spec, const Shape& shape) {
    const int64_t heads = repeats(spec.backward.repeats, Repeats::kHeads) ? 1 : shape.num_heads_q;
    const bool has_diagonals =
        layout_of(spec.backward.score_gradient) == ScoreGradient::kRelativeBias;
    const bool of_all_batch = has_diagonals ||
                              spec.backward.score_gradient == ScoreGradient::kSinks ||
                              repeats(spec.backward.repeats, Repeats::kBatch);
    const int64_t keys = has_diagonals ? shape.seqlen_q + shape.seqlen_kv - 1 : shape.seqlen_kv;
    const bool one_each = spec.backward.score_gradient == ScoreGradient::kSinks ||
                          spec.backward.score_gradient == ScoreGradient::kAlibi;
    const int64_t blocks = one_each ? 1 : (keys + kSumThreads - 1) / kSumThreads;
    return {.grid_x = grid_extent(blocks * heads * (of_all_batch ? 1 : shape.batch))};
  }

  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (auto reason = gradient_refusal(spec, arch)) return reason;
    if (spec.backward.score_gradient == ScoreGradient::kNone)
      return "score_gradient is none; this template serves gradients of biases, slopes, sinks and "
             "loads";
    if (repeats(spec.backward.repeats, Repeats::kKeys))
      return fmt::format("repeats is {}; this template serves biases with a value per key",
                         repeats_text(spec.backward.repeats));
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& score_gradient_sm80() {
  static const ScoreGradientSm80 instance;
  return instance;
}

}  // namespace attune
