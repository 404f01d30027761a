// SPDX-License-Identifier: Apache-2.0
// What prefill_sm90 serves, its knobs and their rules, and how it is launched. The numbers behind
// the rules are in templates/cuda/prefill_sm90.md.
#include "generator/families/prefill_sm90.hpp"

#include <fmt/format.h>

#include <limits>

#include "generator/core/error.hpp"
#include "generator/families/prefill_sm90_cost.hpp"
#include "generator/wgmma_emitter.hpp"

namespace attune {
namespace {

constexpr int kReservedSharedPerBlock = 1024;  // the driver's share
constexpr int kMaxHeadDim = 256;

PrefillSm90Config layout_config(const KernelSpec& spec, const Config& c) {
  const auto knob = [&](std::string_view name) { return static_cast<int>(c.at(name)); };
  return {knob("block_m"), knob("block_n"),   knob("ctas_per_sm"), knob("stages"),
          knob("kv_ring"), knob("o_staging"), spec.head_dim_qk,    spec.head_dim_v};
}

bool fits_shared(const Arch& arch, const PrefillSm90Config& c) {
  const int bytes = prefill_sm90_layout(c).bytes;
  return bytes <= arch.shared_bytes_per_block &&
         c.ctas_per_sm * (bytes + kReservedSharedPerBlock) <= arch.shared_bytes_per_sm;
}

// Accumulators that fit beside addresses, row statistics and temporaries: ptxas spills or
// serialises wgmma above this.
int accumulator_limit(const PrefillSm90Registers& registers) {
  const int available = registers.moved ? registers.consumer : registers.launch;
  return available - (available > 200 ? 28 : 32);
}

std::vector<Knob> knobs(const KernelSpec& spec) {
  const bool causal = spec.mask != Mask::kNone;
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  const std::vector<int64_t> block_n = widest <= 128 ? std::vector<int64_t>{64, 80, 96, 128, 176}
                                                     : std::vector<int64_t>{48, 64, 80, 96, 112};
  return {{"block_m", {128, 192, 256, 64}, "query rows of a tile, 64 for each consumer warpgroup"},
          {"block_n", block_n, "keys of a step"},
          {"ctas_per_sm", {1, 2, 3}, "blocks that share a multiprocessor"},
          {"stages", {2, 3}, "shared-memory slots for K, and as many for V"},
          {"kv_ring", {0, 3, 5}, "slots of one ring for K and V together; 0 keeps them apart"},
          {"overlap", {1, 0}, "softmax of a step overlaps P V of the step before"},
          {"ping_pong", {1, 0}, "warpgroups take turns in issuing products"},
          {"scheduler", causal ? std::vector<int64_t>{2, 0, 1} : std::vector<int64_t>{1, 2, 0},
           "0 one tile per block, 1 static persistent, 2 dynamic"},
          {"l2_section_mb",
           !causal                 ? std::vector<int64_t>{0}
           : spec.window_left >= 0 ? std::vector<int64_t>{32, 0}
                                   : std::vector<int64_t>{32, 16},
           "K and V of heads worked on together; 0 takes head after head"},
          {"o_staging", {1, 0}, "O leaves through shared memory and TMA, or by 16-byte stores"},
          {"row_max", {0, 1}, "a grown row maximum is found by 0 a test in each step, 1 the sums"},
          {"rescale_threshold", {8}, "log2 growth of a row maximum that does not yet rescale O"},
          {"kv_splits", {1, 2, 3, 4, 6, 8, 12, 16}, "blocks that share the keys of one tile"}};
}

using Broken = std::optional<std::string>;

Broken when(bool broken, std::string sentence) {
  return broken ? Broken(std::move(sentence)) : Broken();
}

// Combinations that make no sense or never pay.
std::vector<Constraint> usage_rules(const KernelSpec& spec) {
  return {
      {"splits",
       [=](const Config& c) {
         return when(c.at("kv_splits") > 1 && (c.at("scheduler") != 0 || c.at("stages") != 2 ||
                                               c.at("l2_section_mb") == 16),
                     "kv_splits above 1 needs scheduler 0 (one tile per block), stages 2 and an "
                     "l2_section_mb other than 16");
       }},
      {"ping_pong",
       [=](const Config& c) {
         return when(c.at("ping_pong") && (c.at("block_m") < 128 || !c.at("overlap")),
                     "ping_pong needs 2 warpgroups (block_m 128) and overlap");
       }},
      {"ring",
       [=](const Config& c) {
         return when(
             c.at("kv_ring") && (c.at("stages") != 2 || spec.head_dim_qk + spec.head_dim_v <= 128),
             "kv_ring is for head dims above 64, with stages 2");
       }},
      {"small_tiles",
       [=](const Config& c) {
         return when(c.at("ctas_per_sm") > 1 && c.at("block_m") > 128,
                     "several blocks per multiprocessor need block_m 64 or 128");
       }},
      {"no_overlap",
       [=](const Config& c) {
         return when(!c.at("overlap") && c.at("ctas_per_sm") == 1,
                     "overlap 0 pays only where other blocks fill the gaps: ctas_per_sm 2 or 3");
       }},
  };
}

// What the machine can hold. The o_staging rule belongs here: it asks whether O would fit.
std::vector<Constraint> machine_rules(const KernelSpec& spec, const Arch& arch) {
  return {
      {"registers",
       [=](const Config& c) {
         const int block_m = static_cast<int>(c.at("block_m"));
         const PrefillSm90Registers registers = prefill_sm90_registers(
             block_m / kWarpgroupRows, static_cast<int>(c.at("ctas_per_sm")));
         const int needed = prefill_sm90_accumulators(static_cast<int>(c.at("block_n")),
                                                      spec.head_dim_v, c.at("overlap") != 0);
         return when(needed > accumulator_limit(registers),
                     fmt::format("accumulators take {} registers of at most {}", needed,
                                 accumulator_limit(registers)));
       }},
      {"operands",
       [=](const Config& c) {
         const PrefillSm90Registers registers =
             prefill_sm90_registers(static_cast<int>(c.at("block_m")) / kWarpgroupRows,
                                    static_cast<int>(c.at("ctas_per_sm")));
         const int64_t accumulators = std::max<int64_t>(c.at("block_n"), spec.head_dim_v) / 2;
         const int most = registers.launch - 24;  // beside A, descriptors and addresses
         return when(accumulators > most,
                     fmt::format("one wgmma has {} accumulators; a launch of {} registers holds {}",
                                 accumulators, registers.launch, most));
       }},
      {"shared_memory",
       [=](const Config& c) {
         const PrefillSm90Config config = layout_config(spec, c);
         return when(!fits_shared(arch, config),
                     fmt::format("needs {} bytes of shared memory in each of {} blocks",
                                 prefill_sm90_layout(config).bytes, config.ctas_per_sm));
       }},
      {"o_staging",
       [=](const Config& c) {
         PrefillSm90Config staged = layout_config(spec, c);
         staged.o_staging = 1;
         return when(!c.at("o_staging") && fits_shared(arch, staged),
                     "o_staging 0 is for configs whose O does not fit in shared memory");
       }},
  };
}

std::vector<Constraint> constraints(const KernelSpec& spec, const Arch& arch) {
  std::vector<Constraint> all = usage_rules(spec);
  for (Constraint& rule : machine_rules(spec, arch)) all.push_back(std::move(rule));
  return all;
}

int64_t row_blocks(const Shape& shape, int block_m) {
  return (shape.seqlen_q + block_m - 1) / block_m;
}

class PrefillSm90 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "prefill_sm90"; }
  std::string_view source_path() const override { return "cuda/prefill_sm90.cu"; }
  std::string_view knobs_path() const override { return "cuda/prefill_sm90_knobs.cuh"; }

  std::optional<std::string> refuses(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability != 90 || arch.suffix != "a")
      return fmt::format("{} is not sm_90a, which has wgmma", arch.name());
    if (spec.op != Op::kPrefill) return "the op is not prefill";
    if (spec.dtype_q != Dtype::kBf16 && spec.dtype_q != Dtype::kFp16)
      return fmt::format("dtype_q {} is neither bf16 nor fp16", dtype_name(spec.dtype_q));
    if (spec.dtype_kv != spec.dtype_q)
      return fmt::format("dtype_kv {} differs from dtype_q {}", dtype_name(spec.dtype_kv),
                         dtype_name(spec.dtype_q));
    if (spec.dtype_o != spec.dtype_q)
      return fmt::format("dtype_o {} differs from dtype_q {}", dtype_name(spec.dtype_o),
                         dtype_name(spec.dtype_q));
    for (const int head_dim : {spec.head_dim_qk, spec.head_dim_v})
      if (head_dim < 8 || head_dim > kMaxHeadDim || head_dim % 8 != 0)
        return fmt::format("head dim {} is not a multiple of 8 from 8 to {}", head_dim,
                           kMaxHeadDim);
    return std::nullopt;
  }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return {knobs(spec), constraints(spec, arch)};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch,
                        const Shape& shape) const override;

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    const PrefillSm90Config c = layout_config(spec, config);
    const PrefillSm90Layout layout = prefill_sm90_layout(c);
    Resources r;
    r.threads = (layout.warpgroups + 1) * kWarpgroupThreads;
    r.shared_bytes = layout.bytes;
    const PrefillSm90Registers registers = prefill_sm90_registers(layout.warpgroups, c.ctas_per_sm);
    r.max_registers = registers.moved ? registers.launch : arch.max_registers_per_thread;
    r.min_blocks_per_sm = c.ctas_per_sm;
    return r;
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    return {{"generated/wgmma.cuh",
             emit_wgmma_products({spec.dtype_q, static_cast<int>(config.at("block_n")),
                                  spec.head_dim_qk, spec.head_dim_v})}};
  }

  LaunchPlan launch(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override;

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    return sm90_predicted_clocks(spec, config, shape, device);
  }
};

Config config_of(std::initializer_list<std::pair<const char*, int>> changes, bool causal) {
  Config c({{"block_m", 128},
            {"block_n", 128},
            {"ctas_per_sm", 1},
            {"stages", 2},
            {"kv_ring", 0},
            {"overlap", 1},
            {"ping_pong", 1},
            {"scheduler", causal ? 2 : 1},
            {"l2_section_mb", causal ? 32 : 0},
            {"o_staging", 1},
            {"row_max", 0},
            {"rescale_threshold", 8},
            {"kv_splits", 1}});
  for (const auto& [knob, value] : changes) c.set(knob, value);
  return c;
}

// The configs that won somewhere on an H200 (table in templates/cuda/prefill_sm90.md), then two
// that fit any head dims.
std::vector<Config> proven_configs(const KernelSpec& spec) {
  const bool causal = spec.mask != Mask::kNone;
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  std::vector<Config> configs;
  const auto add = [&](std::initializer_list<std::pair<const char*, int>> changes) {
    configs.push_back(config_of(changes, causal));
  };
  if (widest <= 64) {
    add({{"block_m", 192}, {"row_max", 1}, {"ping_pong", causal ? 0 : 1}});
    add({{"block_m", 256}, {"block_n", 64}, {"row_max", 1}, {"ping_pong", 0}});
    add({{"block_n", 64}, {"ctas_per_sm", 2}, {"overlap", 0}, {"ping_pong", 0}, {"row_max", 1}});
    add({{"block_m", 64},
         {"block_n", 64},
         {"ctas_per_sm", 3},
         {"ping_pong", 0},
         {"row_max", spec.window_left < 0 ? 1 : 0}});
    add({{"block_m", 64}, {"block_n", 64}, {"scheduler", 0}, {"ping_pong", 0}});
  } else if (widest <= 128) {
    add({{"kv_ring", 5}, {"ping_pong", 0}});
    add({{"ping_pong", 0}});
    add({{"block_m", 192}, {"block_n", 80}, {"row_max", 1}});
    add({{"block_m", 64}, {"block_n", 96}, {"scheduler", 0}, {"ping_pong", 0}});
  } else {
    add({{"block_n", 64}, {"kv_ring", 5}, {"ping_pong", 0}, {"o_staging", 0}, {"row_max", 1}});
    add({{"block_n", 80}, {"ping_pong", 0}, {"o_staging", 0}, {"scheduler", 0}});
    add({{"block_n", 80}, {"ping_pong", 0}});
    add({{"block_m", 64}, {"block_n", 64}, {"scheduler", 0}, {"ping_pong", 0}});
  }
  add({{"block_n", 64}, {"ping_pong", 0}});
  add({{"block_n", 64}, {"ping_pong", 0}, {"o_staging", 0}});
  return configs;
}

// Splits of the keys that fill the device when there are few tiles; each keeps several steps.
Config with_splits(Config config, const SearchSpace& legal, const Shape& shape) {
  constexpr int64_t kMultiprocessors = 132;  // of the device that most sm_90a code runs on
  constexpr int64_t kLeastSteps = 4;
  const int64_t tiles =
      row_blocks(shape, static_cast<int>(config.at("block_m"))) * shape.batch * shape.num_heads_q;
  int64_t best = 1;
  for (const Knob& knob : legal.knobs()) {
    if (knob.name != "kv_splits") continue;
    for (const int64_t splits : knob.values)
      if (splits * tiles <= kMultiprocessors &&
          splits * kLeastSteps * config.at("block_n") <= shape.seqlen_kv)
        best = splits;
  }
  if (best == 1) return config;
  config.set("kv_splits", best);
  config.set("scheduler", 0);
  return config;
}

// The proven config that the cost model likes best: no tuning, but the shape counts.
Config PrefillSm90::default_config(const KernelSpec& spec, const Arch& arch,
                                   const Shape& shape) const {
  const SearchSpace legal = space(spec, arch);
  const DeviceFacts h200{132, 50ll << 20};
  std::optional<Config> best;
  double best_cost = 0;
  for (const Config& proven : proven_configs(spec)) {
    const Config config = with_splits(proven, legal, shape);
    if (legal.broken(config)) continue;
    const double cost = sm90_predicted_clocks(spec, config, shape, h200);
    if (best && cost >= best_cost) continue;
    best = config;
    best_cost = cost;
  }
  if (!best)
    throw Error(ErrorCode::kInternal,
                fmt::format("prefill_sm90 has no default config for {}", to_text(spec)));
  return *best;
}

LaunchPlan PrefillSm90::launch(const KernelSpec& spec, const Config& config, const Shape& shape,
                               const DeviceFacts& device) const {
  const PrefillSm90Config c = layout_config(spec, config);
  const PrefillSm90Layout layout = prefill_sm90_layout(c);
  const int64_t splits = config.at("kv_splits");
  const int64_t whole_tiles = row_blocks(shape, c.block_m) * shape.batch * shape.num_heads_q;
  const int64_t tiles = whole_tiles * splits;
  if (tiles > std::numeric_limits<int>::max())
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} tiles of work are more than one launch can number", tiles));
  LaunchPlan plan;
  plan.num_tiles = static_cast<int>(tiles);
  const auto scheduler = static_cast<Sm90Scheduler>(config.at("scheduler"));
  const int64_t resident = static_cast<int64_t>(device.sm_count) * c.ctas_per_sm;
  plan.main().grid_x = static_cast<unsigned>(
      scheduler == Sm90Scheduler::kOneTile ? tiles : std::min(tiles, resident));
  plan.main().threads = static_cast<unsigned>((layout.warpgroups + 1) * kWarpgroupThreads);
  plan.main().shared_bytes = static_cast<unsigned>(layout.bytes);
  if (scheduler == Sm90Scheduler::kDynamic)
    plan.workspace_bytes = plan.zeroed_bytes = 256;  // the tile counter
  if (splits > 1) {  // drawn in templates/cuda/attention/kv_split.cuh
    plan.zeroed_bytes = (whole_tiles * layout.warpgroups * 4 + 255) / 256 * 256;
    plan.workspace_bytes = plan.zeroed_bytes + tiles * layout.warpgroups *
                                                   (spec.head_dim_v / 2 + 4) * kWarpgroupThreads *
                                                   4;
  }
  plan.main().tensor_maps = {{Operand::kQ, kPanelColumns, kWarpgroupRows, kPanelRowBytes},
                      {Operand::kK, kPanelColumns, c.block_n, kPanelRowBytes},
                      {Operand::kV, kPanelColumns, c.block_n, kPanelRowBytes},
                      {Operand::kO, kPanelColumns, kWarpgroupRows, kPanelRowBytes}};
  return plan;
}

}  // namespace

const KernelTemplate& prefill_sm90() {
  static const PrefillSm90 instance;
  return instance;
}

}  // namespace attune
