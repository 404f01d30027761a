// SPDX-License-Identifier: Apache-2.0
// See prefill_mma.hpp. First the limits of all families, then the knobs, then the rules between
// them, then the launch, then two ways to a default.
#include "generator/families/prefill/mma/prefill_mma.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "generator/families/limits.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

constexpr std::array<int64_t, 4> kWideVSlices{2, 4, 8, 3};  // in the order they are tried
constexpr int kMaxBlocksTried = 4;
constexpr int kPlainLoadHint = 128;
constexpr int kScarceRegisters = 28;  // with fewer to spare, held values may cost a spill
constexpr int kSpareOf8Bits = 32;
constexpr int kWiderFragments = 8;  // for fp32: V, 32 columns at a time
constexpr int kRests = 36;          // for split numbers: seen in compiled kernels
constexpr int kMaxKeysInFlight = 192;

}  // namespace

MmaConfig mma_config(const Config& config) {
  const auto knob = [&](const char* name) { return static_cast<int>(config.at(name)); };
  return {knob("block_m"),       knob("block_n"),
          knob("warps"),         static_cast<int>(config.get("kv_slots", 1)),
          knob("share_kv"),      knob("q_place"),
          knob("blocks_per_sm"), static_cast<int>(config.get("hold_offsets", 0)),
          knob("tile_order"),    static_cast<int>(config.get("load_hint", kPlainLoadHint))};
}

int mma_row_bytes(const KernelSpec& spec, int head_dim) {
  return prefill_sm80_row_bytes(head_dim, dtype_bytes(spec.dtype_q));
}

PrefillSm80Layout mma_layout(const KernelSpec& spec, const MmaConfig& c) {
  return {c.block_m,        c.block_n,       c.warps,
          c.kv_slots,       c.share_kv,      c.q_place,
          spec.head_dim_qk, spec.head_dim_v, dtype_bytes(spec.dtype_q)};
}

std::optional<std::string> mma_refusal(const KernelSpec& spec) {
  const bool narrow = is_8_bit(spec);
  for (const auto& [name, value, most] :
       {std::tuple{"head_dim_qk", spec.head_dim_qk, narrow ? kMaxHeadDimOf8Bits : kMaxHeadDimQk},
        std::tuple{"head_dim_v", spec.head_dim_v, narrow ? kMaxHeadDimOf8Bits : kMaxHeadDimV}})
    if (value < 16 || value > most || value % 8 != 0)
      return fmt::format("{} is {}; this template serves multiples of 8 from 16 to {}", name, value,
                         most);
  if (!is_8_bit(spec) && (spec.dtype_kv != spec.dtype_q || spec.dtype_o != spec.dtype_q))
    return fmt::format("dtype_kv is {} and dtype_o is {}; must be dtype_q, {}",
                       dtype_name(spec.dtype_kv), dtype_name(spec.dtype_o),
                       dtype_name(spec.dtype_q));
  return std::nullopt;
}

bool tiles_differ_in_length(const KernelSpec& spec) {
  return spec.mask != Mask::kNone || spec.window_left >= 0 || spec.window_right >= 0 ||
         has_mask_program(spec);
}

std::vector<Knob> mma_tile_knobs(const KernelSpec& spec) {
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  std::vector<int64_t> block_n = widest <= 128 ? std::vector<int64_t>{64, 32, 80, 96, 128}
                                               : std::vector<int64_t>{64, 32, 16, 48, 80};
  if (is_8_bit(spec))  // multiples of 32, the depth of a product
    block_n =
        widest <= 128 ? std::vector<int64_t>{64, 32, 96, 128} : std::vector<int64_t>{64, 32, 96};
  std::vector<int64_t> block_m{128, 64};
  if (spec.dtype_q == Dtype::kFp32) {  // twice the bytes
    block_n = {32, 64, 16, 48};
    block_m.push_back(256);  // one such block fills a multiprocessor's shared memory
  }
  if (has_wide_heads(spec) || spec.dtype_q == Dtype::kFp32) block_m.push_back(32);
  std::vector<Knob> knobs{{"block_m", block_m, "rows of Q per tile"},
                          {"block_n", block_n, "rows of K and V per step"},
                          {"warps", {4, 8, 2}, "warps per block; each owns block_m / warps rows"}};
  add_v_slices(spec, {kWideVSlices.begin(), kWideVSlices.end()}, &knobs);
  return knobs;
}

std::vector<Knob> mma_schedule_knobs(const KernelSpec& spec) {
  const bool masked = tiles_differ_in_length(spec);
  return {{"share_kv", {0, 1}, "1: K and V use the slots of the ring by turns"},
          {"q_place",
           {kQShared, kQRegisters, kQRegistersThroughRing},
           "Q is in 0: shared memory, 1: registers, 2: registers, loaded through the ring"},
          {"blocks_per_sm",
           {1, 2, 3, 4},
           "blocks per multiprocessor that registers and shared memory allow"},
          {"tile_order", masked ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{0},
           "0: rows first, 1: longest first, 2: longest first in sections of L2 size"}};
}

std::vector<Knob> mma_async_knobs(const KernelSpec& spec) {
  std::vector<Knob> knobs = mma_tile_knobs(spec);
  knobs.push_back({"kv_slots",
                   {1, 2, 3, 4, 5},
                   "slots of the ring for K and for V (share_kv=1: for both together)"});
  for (Knob& knob : mma_schedule_knobs(spec)) knobs.push_back(std::move(knob));
  knobs.push_back(
      {"hold_offsets",
       {1, 0},
       "1: ldmatrix offsets stay in registers; 0: recomputed for each block of columns"});
  knobs.push_back(
      {"load_hint", {128, 0}, "bytes around a load that L2 fetches; 0: the hardware's choice"});
  return knobs;
}

namespace {

int register_cap(const Arch& arch, const MmaConfig& c) {
  return attune::register_cap(arch, c.threads() * c.blocks_per_sm);
}

// Returns the number of n8 tiles of O; with 8 bits they come in pairs.
int output_tiles(const KernelSpec& spec) {
  return is_8_bit(spec) ? (spec.head_dim_v + 15) / 16 * 2 : spec.head_dim_v / 8;
}

// Returns the number of registers that a thread always needs: for O, S and Q fragments, and for a
// tile in flight without cp.async. Adds those for addresses, row statistics and fragments in
// flight, as seen in compiled kernels.
int registers_needed(const KernelSpec& spec, const Arch& arch, const MmaConfig& c) {
  const int rows = c.row_tiles();
  const int output = rows * output_tiles(spec) * 4;
  const int scores = rows * (c.block_n / 8) * 4;
  const int query = c.q_place == kQShared ? 0 : rows * mma_row_bytes(spec, spec.head_dim_qk) / 8;
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  const int staged = arch.compute_capability >= 80
                         ? 0
                         : c.block_n * mma_row_bytes(spec, widest) / (4 * c.threads());
  const int staging = staged == 0 ? 0 : 2 * staged + 4;  // with the addresses it comes from
  const int others = rows == 1 ? 46 : 32 + spec.head_dim_v / 8;
  const int wider = (spec.dtype_q == Dtype::kFp32 ? kWiderFragments : 0) +
                    (spec.fp8.accuracy == Accuracy::kSplit ? kRests : 0);
  return output + scores + query + staging + others + wider;
}

int blocks_by_shared_memory(const KernelSpec& spec, const Arch& arch, const MmaConfig& c) {
  const int bytes = prefill_sm80_shared_bytes(mma_layout(spec, c));
  if (bytes > arch.shared_bytes_per_block) return 0;
  return arch.shared_bytes_per_sm / (bytes + reserved_shared_bytes(arch));
}

// Returns the most blocks per multiprocessor whose registers and shared memory fit. With 8-bit
// operands, prefers blocks with spare registers: the registers for byte permutations, factors and
// products in flight are hard to predict.
int most_blocks(const KernelSpec& spec, const Arch& arch, MmaConfig c) {
  const int by_memory = std::min(blocks_by_shared_memory(spec, arch, c), kMaxBlocksTried);
  for (const int spare : {is_8_bit(spec) ? kSpareOf8Bits : 0, 0})
    for (c.blocks_per_sm = by_memory; c.blocks_per_sm > 0; --c.blocks_per_sm)
      if (registers_needed(spec, arch, c) + spare <= register_cap(arch, c)) return c.blocks_per_sm;
  return 0;
}

using Rule = std::optional<std::string> (*)(const KernelSpec&, const Arch&, const MmaConfig&);

std::optional<std::string> rows_rule(const KernelSpec&, const Arch&, const MmaConfig& c) {
  if (c.block_m == 16 * c.warps || c.block_m == 32 * c.warps) return std::nullopt;
  return fmt::format("block_m is {}; must be 16 or 32 rows for each of {} warps", c.block_m,
                     c.warps);
}

std::optional<std::string> slots_rule(const KernelSpec&, const Arch&, const MmaConfig& c) {
  if (!c.share_kv || c.kv_slots % 2 == 1) return std::nullopt;
  return fmt::format("{} slots that K and V share are {} of each: use share_kv=0,kv_slots={}",
                     c.kv_slots, c.kv_slots / 2, c.kv_slots / 2);
}

std::optional<std::string> flight_rule(const KernelSpec&, const Arch&, const MmaConfig& c) {
  const int keys = c.kv_slots * c.block_n;
  if (c.kv_slots <= 2 || keys <= kMaxKeysInFlight) return std::nullopt;
  return fmt::format("{} slots of {} keys are {} keys in flight; more than {} gain nothing",
                     c.kv_slots, c.block_n, keys, kMaxKeysInFlight);
}

std::optional<std::string> shared_memory_rule(const KernelSpec& spec, const Arch& arch,
                                              const MmaConfig& c) {
  const int bytes = prefill_sm80_shared_bytes(mma_layout(spec, c));
  if (bytes > arch.shared_bytes_per_block)
    return fmt::format("the tiles take {} bytes of shared memory; {} has {} per block", bytes,
                       arch.name(), arch.shared_bytes_per_block);
  if (c.blocks_per_sm <= blocks_by_shared_memory(spec, arch, c)) return std::nullopt;
  return fmt::format("{} blocks of {} bytes of shared memory do not fit the {} of a multiprocessor",
                     c.blocks_per_sm, bytes, arch.shared_bytes_per_sm);
}

std::optional<std::string> registers_rule(const KernelSpec& spec, const Arch& arch,
                                          const MmaConfig& c) {
  const int needed = registers_needed(spec, arch, c);
  const int cap = register_cap(arch, c);
  if (needed <= cap) return std::nullopt;
  return fmt::format("a thread needs about {} registers; {} blocks of {} threads leave it {}",
                     needed, c.blocks_per_sm, c.threads(), cap);
}

std::optional<std::string> occupancy_rule(const KernelSpec& spec, const Arch& arch,
                                          const MmaConfig& c) {
  const int most = most_blocks(spec, arch, c);
  if (c.blocks_per_sm == most) return std::nullopt;
  return fmt::format("blocks_per_sm is {}, but {} blocks fit a multiprocessor", c.blocks_per_sm,
                     most);
}

std::optional<std::string> offsets_rule(const KernelSpec& spec, const Arch& arch,
                                        const MmaConfig& c) {
  if (c.hold_offsets || arch.compute_capability < 80 || is_8_bit(spec))
    return std::nullopt;  // sm_75 never holds them; with 8 bits registers are hard to predict
  const int spare = register_cap(arch, c) - registers_needed(spec, arch, c);
  if (spare < kScarceRegisters) return std::nullopt;
  return fmt::format("about {} registers are spare: use hold_offsets=1", spare);
}

// Q through the ring costs no shared memory, but the start waits. Only another block in flight
// makes up for that.
std::optional<std::string> q_place_rule(const KernelSpec& spec, const Arch& arch,
                                        const MmaConfig& c) {
  if (c.q_place != kQRegistersThroughRing) return std::nullopt;
  MmaConfig own = c;
  own.q_place = kQRegisters;
  if (most_blocks(spec, arch, own) < c.blocks_per_sm) return std::nullopt;
  return fmt::format("{} blocks also fit with separate shared memory for Q: use q_place=1",
                     c.blocks_per_sm);
}

// Knobs besides tile and ring are nearly independent: trying them one at a time finds their gains.
std::optional<std::string> variant_rule(const KernelSpec&, const Arch& arch, const MmaConfig& c) {
  const bool made_anew = !c.hold_offsets && arch.compute_capability >= 80;
  const int variants = made_anew + (c.share_kv != 0) + (c.q_place != kQShared) +
                       (c.tile_order == 2) + (c.load_hint != kPlainLoadHint);
  if (variants <= 1) return std::nullopt;
  return fmt::format(
      "{} of hold_offsets=0, share_kv, q_place, tile_order=2 and load_hint=0 are "
      "set; must be at most one",
      variants);
}

}  // namespace

std::vector<Constraint> mma_constraints(const KernelSpec& spec, const Arch& arch) {
  const auto rule = [&](const char* name, Rule broken) {
    return Constraint{name, {}, [spec, arch, broken](const Config& config) {
                        return broken(slice_of(spec, config), arch, mma_config(config));
                      }};
  };
  return {rule("rows of a warp", rows_rule),     rule("offsets", offsets_rule),
          rule("slots of the ring", slots_rule), rule("keys in flight", flight_rule),
          rule("one variant", variant_rule),     rule("shared memory", shared_memory_rule),
          rule("registers", registers_rule),     rule("blocks per multiprocessor", occupancy_rule),
          rule("place of Q", q_place_rule)};
}

KernelSpec PrefillMma::compiled_spec(const KernelSpec& spec, const Config& config) const {
  return slice_of(spec, config);
}

std::vector<Constant> PrefillMma::extra_constants(const KernelSpec& spec, const Arch&,
                                                  const Config& config) const {
  return v_slice_constants(spec, config);
}

Resources PrefillMma::resources(const KernelSpec& spec, const Arch& arch,
                                const Config& config) const {
  const MmaConfig c = mma_config(config);
  return {c.threads(), prefill_sm80_shared_bytes(mma_layout(slice_of(spec, config), c)),
          register_cap(arch, c), c.blocks_per_sm};
}

LaunchStructure PrefillMma::structure(const KernelSpec& spec, const Config& config) const {
  const MmaConfig c = mma_config(config);
  const PrefillSm80Layout layout = mma_layout(slice_of(spec, config), c);
  StepStructure step{.parts = attention_parts(spec),
                     .threads = static_cast<unsigned>(c.threads()),
                     .shared_bytes = static_cast<unsigned>(prefill_sm80_shared_bytes(layout))};
  LaunchStructure all{.steps = {step}};
  add_max_logits(spec, &all);
  add_block_map(spec, &all);
  return all;
}

LaunchSizes PrefillMma::sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                              const DeviceFacts&) const {
  const MmaConfig c = mma_config(config);
  const int64_t row_blocks = (shape.seqlen_q + c.block_m - 1) / c.block_m;
  const int tiles = tile_count(row_blocks * shape.batch * shape.num_heads_q * v_slices(config));
  LaunchSizes sizes{.steps = {{.grid_x = grid_extent(tiles), .num_tiles = tiles}}};
  add_max_logits(spec, &sizes);
  add_block_map(spec, shape,
                {.row_blocks = row_blocks, .head_tiles = shape.num_heads_q, .block_n = c.block_n},
                &sizes);
  return sizes;
}

double PrefillMma::predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                                  const Shape& shape, const DeviceFacts& device) const {
  const KernelSpec slice = slice_of(spec, config);
  return mma_predicted_cost(slice, arch, mma_config(config), shape, device) * v_slices(config);
}

// Returns the tile that should be the fastest among those with room for such heads. Not measured.
std::optional<Config> PrefillMma::wide_default(const KernelSpec& spec, const Arch& arch,
                                               const Shape& shape,
                                               const DeviceFacts& device) const {
  constexpr std::array<std::array<int64_t, 3>, 7> kTiles{
      {{128, 32, 8}, {64, 64, 4}, {64, 32, 4}, {64, 16, 4}, {32, 64, 2}, {32, 32, 2}, {32, 16, 2}}};
  const SearchSpace legal = space(spec, arch);
  std::optional<Config> best;
  double best_cost = 0;
  for (const auto& [block_m, block_n, warps] : kTiles)
    for (const int64_t slices : has_wide_v(spec) ? kWideVSlices : std::array<int64_t, 4>{1}) {
      std::vector<std::pair<std::string, int64_t>> chosen{
          {"block_m", block_m}, {"block_n", block_n}, {"warps", warps}};
      if (has_wide_v(spec)) chosen.emplace_back("v_slices", slices);
      const std::optional<Config> config = with_most_blocks(legal, chosen);
      if (!config) continue;
      const double cost = predicted_cost(spec, arch, *config, shape, device);
      if (best && cost >= best_cost) continue;
      best = config;
      best_cost = cost;
    }
  return best;
}

std::optional<Config> PrefillMma::with_most_blocks(
    const SearchSpace& legal, const std::vector<std::pair<std::string, int64_t>>& chosen) {
  Config config = legal.first_values();
  for (const auto& [knob, value] : chosen) config.set(knob, value);
  for (int blocks_per_sm = 1; blocks_per_sm <= kMaxBlocksTried; ++blocks_per_sm) {
    config.set("blocks_per_sm", blocks_per_sm);
    if (!legal.broken(config)) return config;
  }
  return std::nullopt;
}

}  // namespace attune
