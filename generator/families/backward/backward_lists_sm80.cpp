// SPDX-License-Identifier: Apache-2.0
// backward_lists_sm80: gradients of attention over lists of keys with mma.sync, for sm_80 and
// later. Kernel: templates/cuda/backward_lists_sm80/backward_lists_sm80.cu. A config is chosen by
// predicted_cost(): as many heads of a row as share a head of K, and as many keys a step as fit.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/core/ops/ops.hpp"
#include "generator/core/system/error.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/served.hpp"
#include "templates/shared/layouts/backward_lists_layout.h"

namespace attune {
namespace {

constexpr unsigned kThreadsOfSums = 256, kPrepareWarps = 8;   // as in the template
constexpr unsigned kOrderThreads = 1024, kJoinThreads = 256;  // as in the template
constexpr int kOrderKeys = 256;
constexpr size_t kMainStep = 2;
constexpr int kColumnsAtOnce = 32, kKeysAtOnce = 32;  // of dK and dV that a warp sums
constexpr int kOtherRegisters = 60;   // for addresses and fragments, besides accumulators
constexpr int kMoreOfBlackwell = 16;  // ptxas 13.0 needs more there

// Rough numbers for ranking, of a multiprocessor: products, bytes of shared memory and bytes that
// are added to global memory per clock; clocks of a step that nothing else of its block hides.
constexpr double kFlopsPerClock = 2500, kSharedPerClock = 128, kAddedPerClock = 10;
constexpr double kClocksOfStep = 800;
constexpr double kHidden = 0.25;  // what hidden clocks count

using Broken = std::optional<std::string>;

// The values of a config.
struct ListsKernel {
  int heads, keys, warps, blocks_per_sm;
  bool apart;
  int qk, v;
  bool v_in_k;

  ListsKernel(const KernelSpec& spec, const Config& config)
      : heads(as_int(config, "heads")),
        keys(as_int(config, "keys")),
        warps(as_int(config, "warps")),
        blocks_per_sm(as_int(config, "blocks_per_sm")),
        apart(config.at("apart") != 0),
        qk(spec.head_dim_qk),
        v(spec.head_dim_v),
        v_in_k(spec.cache.v_in_k) {}

  int threads() const { return 32 * warps; }
  int columns() const { return backward_lists_columns(qk, v, v_in_k); }
  int shared_bytes() const { return backward_lists_layout({heads, keys, qk, v, v_in_k}).bytes; }
  // The warps that compute S share keys and tiles of 16 heads evenly; likewise those of dP.
  int score_warps() const { return apart ? warps / 2 : warps; }
  int keys_of_warp() const { return apart ? 32 : 16; }
  int key_warps() const { return keys / keys_of_warp(); }
  int row_warps() const { return std::min(heads / 16, score_warps() / std::max(1, key_warps())); }
  int registers() const {
    const int dq = heads / 16 * ((qk / 8 + warps - 1) / warps) * 4;
    const int scores = heads / 16 / std::max(1, row_warps()) * 16;  // of S and dP, or 32 keys
    const int sums = std::min(keys, kKeysAtOnce) + 8;
    return dq + std::max(scores, sums) + kOtherRegisters;
  }
};

Constraint warps_share_scores(const KernelSpec& spec) {
  return {
      "warps",
      {"heads", "keys", "warps", "apart", "blocks_per_sm"},
      [spec](const Config& c) -> Broken {
        const ListsKernel kernel(spec, c);
        const int tiles = kernel.heads / 16;
        if (kernel.key_warps() >= 1 && kernel.row_warps() >= 1 && tiles % kernel.row_warps() == 0)
          return std::nullopt;
        return fmt::format(
            "warps is {}; {} of them must be at least one for each {} of {} keys, and share {} "
            "heads evenly",
            kernel.warps, kernel.score_warps(), kernel.keys_of_warp(), kernel.keys, kernel.heads);
      }};
}

Constraint fits_multiprocessor(const KernelSpec& spec, const Arch& arch) {
  return {
      "memory",
      {"heads", "keys", "warps", "apart", "blocks_per_sm"},
      [spec, arch](const Config& c) -> Broken {
        const ListsKernel kernel(spec, c);
        const int bytes = kernel.shared_bytes();
        if (bytes > arch.shared_bytes_per_block)
          return fmt::format("the tiles take {} bytes of shared memory; {} has {} per block", bytes,
                             arch.name(), arch.shared_bytes_per_block);
        if (kernel.blocks_per_sm * (bytes + reserved_shared_bytes(arch)) > arch.shared_bytes_per_sm)
          return fmt::format(
              "{} blocks of {} bytes of shared memory do not fit the {} of a multiprocessor",
              kernel.blocks_per_sm, bytes, arch.shared_bytes_per_sm);
        const int cap = register_cap(arch, kernel.threads() * kernel.blocks_per_sm) -
                        (arch.compute_capability >= 100 ? kMoreOfBlackwell : 0);
        if (kernel.registers() <= cap) return std::nullopt;
        return fmt::format("a thread needs about {} registers; {} blocks of {} threads leave {}",
                           kernel.registers(), kernel.blocks_per_sm, kernel.threads(), cap);
      }};
}

class BackwardListsSm80 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "backward_lists_sm80"; }
  std::string_view source_path() const override {
    return "cuda/backward_lists_sm80/backward_lists_sm80.cu";
  }
  std::string_view knobs_path() const override {
    return "cuda/backward_lists_sm80/backward_lists_sm80_knobs.cuh";
  }
  // 2: with deterministic=1 entries are ordered by key before they are joined
  int revision() const override { return 2; }
  const Served& serves() const override { return serves_gradients_over_lists(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return SearchSpace(
        {{"heads", {64, 32, 16}, "heads of a row that a block handles"},
         {"keys", {64, 32, 16}, "keys per step"},
         {"warps", {8, 4}, "warps per block"},
         {"blocks_per_sm", {1, 2, 3, 4}, "blocks per multiprocessor that registers allow"},
         {"apart", {0, 1}, "1: half of the warps compute S, the others dP"}},
        {warps_share_scores(spec), fits_multiprocessor(spec, arch)});
  }
  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    std::vector<Config> all = space(spec, arch).enumerate();
    std::erase_if(all, [](const Config& one) { return one.at("apart") != 0; });  // not measured yet
    const auto cost = [&](const Config& one) {
      return predicted_cost(spec, arch, one, shape, device);
    };
    if (all.empty())
      throw Error(ErrorCode::kUnsupported, fmt::format("{} has no config for {} on {}", name(),
                                                       to_problem_text(spec), arch.name()));
    return *std::min_element(all.begin(), all.end(),
                             [&](const Config& a, const Config& b) { return cost(a) < cost(b); });
  }
  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    const ListsKernel kernel(spec, config);
    return {.threads = std::max(static_cast<int>(kThreadsOfSums), kernel.threads()),
            .shared_bytes = kernel.shared_bytes(),
            .max_registers = register_cap(arch, kernel.threads() * kernel.blocks_per_sm)};
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config&) const override {
    std::vector<Constant> all{bool_constant("kValuesInKeys", spec.cache.v_in_k)};
    if (spec.backward.deterministic) all.push_back(bool_constant("kInParts", true));
    return all;
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    const ListsKernel kernel(spec, config);
    const std::vector<ArgumentPart> parts{ArgumentPart::kBase, ArgumentPart::kGradients};
    StepStructure main{.parts = parts,
                       .threads = static_cast<unsigned>(kernel.threads()),
                       .shared_bytes = static_cast<unsigned>(kernel.shared_bytes())};
    main.parts.push_back(ArgumentPart::kLists);
    LaunchStructure all{
        .steps = {{.entry = "attune_prepare", .parts = parts, .threads = 32 * kPrepareWarps},
                  {.entry = "attune_clear", .threads = kThreadsOfSums},
                  main},
        .main_step = kMainStep,
        .workspace = {{.name = "sums"}}};
    if (spec.backward.deterministic) {
      all.steps[kMainStep].parts = {ArgumentPart::kBase, ArgumentPart::kGradients,
                                    ArgumentPart::kRound, ArgumentPart::kLists};
      const std::vector<ArgumentPart> of_lists{ArgumentPart::kBase, ArgumentPart::kRound,
                                               ArgumentPart::kLists};
      all.steps.push_back({.entry = "attune_order", .parts = of_lists, .threads = kOrderThreads});
      all.steps.push_back({.entry = "attune_join", .parts = of_lists, .threads = kJoinThreads});
      all.rounds = {kMainStep, all.steps.size()};
    }
    all.steps.push_back({.entry = "attune_keys", .parts = parts, .threads = kThreadsOfSums});
    return all;
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const ListsKernel kernel(spec, config);
    const int64_t rows = shape.batch * shape.seqlen_q;
    const int64_t sums =
        shape.batch * shape.seqlen_kv * shape.num_heads_kv * int64_t{kernel.columns()};
    const auto grid = [](int64_t count, int64_t of_block) {
      return StepSize{.grid_x = grid_extent((count + of_block - 1) / of_block)};
    };
    const int64_t row_blocks = blocks_of_row(kernel, spec, shape);
    LaunchSizes all{
        .steps = {grid(rows * shape.num_heads_q, kPrepareWarps), grid(sums, 4 * kThreadsOfSums)},
        .workspace = {{.columns = backward_lists_aligned(2 * rows * shape.num_heads_q) +
                                  backward_lists_aligned(sums)}}};
    if (spec.backward.deterministic) {
      const int64_t entries = shape.num_heads_kv * keys_of_row(spec, shape);  // of a row
      const int64_t floats = row_blocks * keys_of_row(spec, shape) * kernel.columns();
      const int64_t of_round = rows_of_round(kernel, rows, row_blocks, floats, device);
      const int64_t batch = backward_lists_batch(shape.batch, shape.seqlen_q, of_round);
      const int64_t key_blocks = (shape.seqlen_kv + kOrderKeys - 1) / kOrderKeys;
      all.steps.push_back(grid(of_round * row_blocks, 1));
      all.steps.push_back(grid(batch * shape.num_heads_kv * key_blocks, 1));
      all.steps.push_back(
          grid(batch * (sums / std::max<int64_t>(shape.batch, 1)), 4 * kJoinThreads));
      all.rounds = {.heads = tile_count(rows),
                    .of_round = tile_count(of_round),
                    .stride = tile_count(of_round)};
      all.workspace[0].columns += of_round * (floats + entries) + 2 * sums / kernel.columns();
    } else {
      all.steps.push_back(grid(rows * row_blocks, 1));
    }
    all.steps.push_back(grid(sums, 8 * kThreadsOfSums));
    return all;
  }

  // Returns clocks of a multiprocessor: per step its products and shared memory, which overlap in
  // part, or the sums that it adds to global memory.
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    const ListsKernel k(spec, config);
    const double heads = k.heads, keys = k.keys, warps = k.warps;
    const double products = 2 * heads * keys * (3.0 * k.qk + 2.0 * k.v) / kFlopsPerClock;
    const double rows_of_warp = k.keys_of_warp() + heads / k.row_warps();
    const double scores = k.key_warps() * k.row_warps() * rows_of_warp * 2 * (k.qk + k.v);
    const double of_dq = warps * heads * 2 * keys + keys * 2 * k.qk;
    const double keys_of_warp = std::min(keys, 1.0 * kKeysAtOnce);
    const double column_warps = warps * keys_of_warp / keys;
    const double passes = std::ceil(k.qk / column_warps / kColumnsAtOnce) +
                          std::ceil(k.v / column_warps / kColumnsAtOnce);
    const double of_keys = warps * passes * heads * 2 * (keys_of_warp + kColumnsAtOnce);
    const double memory = (scores + of_dq + of_keys) / kSharedPerClock;
    const double added = keys * k.columns() * 4 / kAddedPerClock;
    const double inside = products + memory;
    const double step =
        k.blocks_per_sm * (std::max(inside, added) + kHidden * std::min(inside, added)) +
        kClocksOfStep;
    const double steps = std::ceil(static_cast<double>(keys_of_row(spec, shape)) / keys) + 1;
    const int64_t blocks = shape.batch * shape.seqlen_q * blocks_of_row(k, spec, shape);
    const double waves = std::ceil(static_cast<double>(blocks) /
                                   (static_cast<double>(device.sm_count) * k.blocks_per_sm));
    return waves * steps * step;
  }

 private:
  static int64_t blocks_of_row(const ListsKernel& kernel, const KernelSpec& spec,
                               const Shape& shape) {
    return shape.num_heads_kv * ((spec.gqa_ratio + kernel.heads - 1) / kernel.heads);
  }

  // Returns the rows of a round: those of whole waves of blocks, if the parts of a wave fit.
  static int64_t rows_of_round(const ListsKernel& kernel, int64_t rows, int64_t row_blocks,
                               int64_t floats, const DeviceFacts& device) {
    const int64_t fitting = backward_lists_round(std::max<int64_t>(rows, 1), floats);
    if (fitting >= rows) return fitting;
    const int64_t wave = int64_t{device.sm_count} * kernel.blocks_per_sm;
    const int64_t waves = fitting * row_blocks / wave;
    return waves == 0 ? fitting : std::max<int64_t>(1, waves * wave / row_blocks);
  }

  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (spec.cache.key_indices == KeyIndices::kNone)
      return "key_indices is none; this template serves lists of keys";
    if (arch.target != Target::kCuda || arch.compute_capability < 80)
      return fmt::format("{} is not supported; this template serves sm_80 and later", arch.name());
    if (spec.dtype_q != Dtype::kFp16 && spec.dtype_q != Dtype::kBf16)
      return fmt::format("dtype is {}; this template serves fp16 and bf16",
                         dtype_name(spec.dtype_q));
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& backward_lists_sm80() {
  static const BackwardListsSm80 instance;
  return instance;
}

}  // namespace attune
