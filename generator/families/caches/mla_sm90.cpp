// SPDX-License-Identifier: Apache-2.0
// mla_sm90: op attention_kvcache in 16 bits with wgmma, for caches whose values are the first
// columns of the keys. The kernel is templates/cuda/mla_sm90/mla_sm90.cu, which explains the knobs.
//
// How a config is chosen for a problem:
// 1. refusal() returns why the family does not serve the spec, or nullopt.
// 2. space() returns the legal configs: the values of the knobs, and two rules.
// 3. default_config() returns the config of space() with the least predicted_cost().
// 4. structure() and sizes() return the launch of a config.
// The tuner reads space() and predicted_cost() too, and times what it finds.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "generator/core/ops/ops.hpp"
#include "generator/families/caches/cache_shares.hpp"
#include "generator/families/cheapest_config.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "templates/shared/layouts/cache_layout.h"
#include "templates/shared/layouts/mla_sm90_layout.h"

namespace attune {
namespace {

constexpr int kLeastHeadDimV = 384, kStepOfV = 128, kLeastBoxRows = 8;
constexpr int kLeastRows = 16;

const Served& serves_latent_caches() {
  static const Served served{Op::kAttentionKvCache,
                             {"mask", "window", "page_size", "packed_q", "packed_kv",
                              "batch_invariant", "v_in_k", "key_indices", "kv_factors"}};
  return served;
}

// True if keys are the rows of products (cuda/mla_sm90/mla_keys_first.cuh).
bool has_keys_first(const Config& config) { return config.at("rows") < kWarpgroupRows; }

int consumers_of(const Config& config) { return mla_consumers(as_int(config, "rows")); }

bool has_lists(const KernelSpec& spec) { return spec.cache.key_indices != KeyIndices::kNone; }

// True if the kernel converts keys of 8 bits (cuda/mla_sm90/converted_keys.cuh).
bool converts_keys(const KernelSpec& spec) { return is_8_bit(spec.dtype_kv); }

// True if the kernel gathers keys by cp.async, because it converts them, or because TMA boxes would
// have too few of them (cuda/mla_sm90/gathered_keys.cuh).
bool gathers_keys(const KernelSpec& spec) {
  return converts_keys(spec) || has_lists(spec) || spec.cache.page_size % kLeastBoxRows != 0;
}

int threads_of(const KernelSpec& spec, const Config& config) {
  return mla_warpgroups(as_int(config, "rows"), converts_keys(spec)) * kWarpgroupThreads;
}

// Returns the bytes of a row of keys in the cache if they are converted, else 0.
int code_bytes(const KernelSpec& spec) {
  return mla_code_bytes(spec.head_dim_qk, spec.head_dim_v, converts_keys(spec),
                        spec.cache.kv_factors == KvFactors::kLatent);
}

MlaSm90Layout layout_of(const KernelSpec& spec, const Config& config) {
  return mla_sm90_layout(spec.head_dim_qk, as_int(config, "rows"), has_lists(spec),
                         code_bytes(spec));
}

// Returns values of pack_heads. A tile of a row with a list holds heads alone, up to 64 of a group:
// the power of 2 that holds the whole group, which leaves places idle, or 64 where they divide it.
std::vector<int64_t> pack_heads(const KernelSpec& spec) {
  if (!has_lists(spec)) return sm90_pack_heads(spec);
  if (spec.gqa_ratio > kWarpgroupRows) return {kWarpgroupRows};
  return {std::max<int64_t>(kLeastRows, std::bit_ceil(static_cast<unsigned>(spec.gqa_ratio)))};
}

// Returns products whose accumulators have the rows of Q as columns.
std::vector<WgmmaProduct> products_of_keys(const MlaSm90Layout& layout, int rows) {
  const int last_panels = layout.parts.panels_qk - (layout.slots_of_step - 1) * kMlaSlotPanels;
  return {{.function = "mla_qk",
           .a = WgmmaA::kShared,
           .n = rows,
           .k = kMlaSlotPanels * kPanelColumns,
           .adds = true},
          {.function = "mla_qk_last",
           .a = WgmmaA::kShared,
           .n = rows,
           .k = last_panels * kPanelColumns,
           .adds = true},
          {.function = "mla_pv", .a = WgmmaA::kSharedColumns, .n = rows, .k = kMlaKeys}};
}

// Tiles of a call: rows of a request per tile and head, and groups of heads.
struct Tiles {
  int64_t rows, of_request, groups, batch;
  int64_t used;  // rows of Q in a tile: tokens times heads

  int64_t count() const { return of_request * groups * batch; }
};

Tiles tiles_of(const Config& config, const KernelSpec& spec, const Shape& shape) {
  const int64_t pack = config.at("pack_heads");
  const int64_t heads = std::min<int64_t>(pack, spec.gqa_ratio), rows = config.at("rows") / pack;
  return {rows, (shape.seqlen_q + rows - 1) / rows, shape.num_heads_q / heads, shape.batch,
          heads * std::min(shape.seqlen_q, rows)};
}

class MlaSm90 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "mla_sm90"; }
  std::string_view source_path() const override { return "cuda/mla_sm90/mla_sm90.cu"; }
  std::string_view knobs_path() const override { return "cuda/mla_sm90/mla_sm90_knobs.cuh"; }
  const Served& serves() const override { return serves_latent_caches(); }
  int revision() const override { return 2; }

  SearchSpace space(const KernelSpec& spec, const Arch&) const override {
    using Values = std::vector<int64_t>;
    // With batch_invariant, each knob that affects bits has one value.
    const bool own_bits = spec.cache.batch_invariant;
    const Values packs = pack_heads(spec);
    const bool few_heads =
        !own_bits && packs.back() < kWarpgroupRows && packs.back() >= spec.gqa_ratio;
    Values rows{kWarpgroupRows};
    if (few_heads) rows = {kLeastRows, 32, kWarpgroupRows};
    if (has_lists(spec)) rows = packs;
    return {
        {{"scheduler", own_bits ? Values{kDrawn} : Values{kShared, kDrawn},
          "2: dynamic, whole tiles; 3: equal shares of all steps"},
         {"rows", rows, "rows per tile; below 64, keys are the rows of products"},
         {"pack_heads", own_bits ? Values{packs.back()} : packs,
          "heads of a group that share the rows of a tile"},
         {"min_tiles", own_bits ? Values{2} : Values{2, 1, 4, 8}, "minimum of steps per share"},
         {"tile_overhead", own_bits ? Values{1} : Values{1, 2}, "overhead of a tile, in steps"}},
        {only_shares_vary(2, 1),
         {"few_rows",
          {"rows", "pack_heads"},
          [spec](const Config& c) -> std::optional<std::string> {
            if (!has_keys_first(c) ||
                (c.at("pack_heads") >= spec.gqa_ratio && c.at("pack_heads") <= c.at("rows")))
              return std::nullopt;
            return "tiles of fewer than 64 rows hold all heads of a group";
          }}}};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_config(*this, spec, arch, shape, device);
  }

  Resources resources(const KernelSpec& spec, const Arch&, const Config& config) const override {
    const int threads = threads_of(spec, config);
    return {.threads = threads,
            .shared_bytes = layout_of(spec, config).bytes,
            .max_registers = prefill_sm90_registers(threads / kWarpgroupThreads - 1, 1).launch,
            .min_blocks_per_sm = 1};
  }

  // Returns the spec with the columns of V of one warpgroup, for which the kernel is compiled.
  KernelSpec compiled_spec(const KernelSpec& spec, const Config& config) const override {
    KernelSpec part = spec;
    part.head_dim_v /= consumers_of(config);
    return part;
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config&) const override {
    std::vector<Constant> constants{{"bool", "kMla", "true"},
                                    {"int", "kBlockM", std::to_string(kWarpgroupRows)},
                                    {"int", "kBlockN", std::to_string(kMlaKeys)},
                                    {"int", "kBlocksPerSm", "1"},
                                    {"int", "kKvSlots", std::to_string(kMlaSlots)},
                                    {"int", "kKvRing", "0"},
                                    {"int", "kOverlap", "0"},
                                    {"int", "kL2SectionMb", "0"},
                                    {"int", "kOStaging", "0"},
                                    {"int", "kRescaleThreshold", "8"},
                                    {"int", "kKvSplits", "1"}};
    if (gathers_keys(spec)) constants.push_back({"bool", "kGathersKeys", "true"});
    if (converts_keys(spec)) constants.push_back({"bool", "kConvertsKeys", "true"});
    return constants;
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    if (has_keys_first(config))
      return {{"generated/wgmma.cuh",
               emit_wgmma_products(spec.dtype_q, products_of_keys(layout_of(spec, config),
                                                                  as_int(config, "rows")))}};
    const int half = spec.head_dim_v / kMlaHalves,
              columns = half / mla_pv_parts(half, converts_keys(spec));
    return {{"generated/wgmma.cuh",
             emit_wgmma_products(spec.dtype_q,
                                 {{"mla_qk", WgmmaA::kShared, kMlaKeys, spec.head_dim_qk, kMlaKeys},
                                  {"mla_own_pv", WgmmaA::kRegisters, columns, kMlaKeys},
                                  {"mla_other_pv", WgmmaA::kSharedRows, columns, kMlaKeys}})}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    LaunchStructure all;
    StepStructure& step = all.steps[0];
    step.parts = attention_parts(spec);
    step.parts.push_back(ArgumentPart::kCache);
    if (has_lists(spec)) step.parts.push_back(ArgumentPart::kLists);
    step.threads = static_cast<unsigned>(threads_of(spec, config));
    step.shared_bytes = static_cast<unsigned>(layout_of(spec, config).bytes);
    step.early = true;  // waits for the previous grid before it reads lengths
    const int box_rows =
        spec.cache.page_size > 0 ? std::gcd(spec.cache.page_size, kMlaKeys) : kMlaKeys;
    if (!gathers_keys(spec))
      step.tensor_maps.push_back({.tensor = Operand::kK,
                                  .box_columns = kPanelColumns,
                                  .box_rows = box_rows,
                                  .fetches_around = false,
                                  .of_pages = true});
    if (config.at("scheduler") == kDrawn)
      all.workspace = {{.name = "tile_counter", .zeroed = true, .alignment = kTileCounterBytes}};
    else
      all.workspace = {{.name = "tickets", .zeroed = true}, {.name = "parts"}};
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& of_call,
                    const DeviceFacts& device) const override {
    const Shape shape = line_shape(spec, of_call);
    const int64_t count = tiles_of(config, spec, shape).count();
    const int64_t steps = (shape.seqlen_kv + kMlaKeys - 1) / kMlaKeys;
    // The kernel counts steps along all tiles, and tickets, in an int.
    tile_count(count * std::max<int64_t>(steps + config.at("tile_overhead"), kMlaHalves));
    LaunchSizes sizes{.steps = {{.grid_x = grid_extent(device.sm_count)}}};
    if (config.at("scheduler") == kDrawn) {
      sizes.workspace = {{.columns = 1}};
    } else {
      const int consumers = consumers_of(config);
      sizes.workspace = {
          {.columns = count * consumers + cache_group_tickets(device.sm_count, consumers)},
          {.columns = cache_part_floats(as_int(config, "rows"), spec.head_dim_v / consumers),
           .rows = consumers,
           .heads = 2 * device.sm_count}};
    }
    return sizes;
  }

  // Returns approximate clocks of the block with the most work. The products of a step are bound by
  // shared memory, its keys by the memory's rate. The longer of the two counts, and a small share
  // of the shorter. Parts are joined row by row. If keys come first, half as many threads join
  // them. The constants are a fit to 1424 timings; those of conversions follow from the last tables
  // (LOG.md).
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& of_call, const DeviceFacts& device) const override {
    const Shape shape = line_shape(spec, of_call);
    constexpr double kMeeting = 350, kBytesOfMemory = 21, kHides = 8;
    constexpr double kJoin = 1700, kJoinOfRow = 285, kSecondJoin = 0.85;
    const Tiles tiles = tiles_of(config, spec, shape);
    const bool keys_first = has_keys_first(config);
    const auto used = static_cast<double>(tiles.used);
    const double of_tile = keys_first ? 800 : 2800, of_part = used * (keys_first ? 65 : 30);
    const double products = keys_first ? (spec.head_dim_qk + spec.head_dim_v) * 1.5 + 2 * kMeeting
                                       : spec.head_dim_qk * 3.0 + spec.head_dim_v * 2.0 + kMeeting;
    // Readers of a key
    const double readers = static_cast<double>(tiles.of_request * tiles.groups);
    const int of_key =
        converts_keys(spec) ? code_bytes(spec) : spec.head_dim_qk * dtype_bytes(spec.dtype_kv);
    const double bytes = static_cast<double>(kMlaKeys) * of_key;
    const double memory = bytes / kBytesOfMemory / std::min(readers, 2.0);
    const double conversion = !converts_keys(spec) ? 0 : keys_first ? 3850 : 4400;
    const double step = std::pow(
        std::pow(products, kHides) + std::pow(memory, kHides) + std::pow(conversion, kHides),
        1 / kHides);
    const double steps = std::ceil(static_cast<double>(shape.seqlen_kv) / kMlaKeys);
    const auto count = static_cast<double>(std::max<int64_t>(1, tiles.count()));
    const auto blocks = static_cast<double>(device.sm_count);
    if (config.at("scheduler") == kDrawn)
      return std::ceil(count / blocks) * (steps * step + of_tile);
    const double tile_overhead = as_int(config, "tile_overhead"),
                 least = as_int(config, "min_tiles");
    const double share = std::max(least, std::ceil(count * (steps + tile_overhead) / blocks));
    const double pieces = 1 + share / (steps + tile_overhead);
    const bool cut = share < steps || count > blocks;
    const int parts = static_cast<int>(std::ceil(steps / share)) + 1,
              group = cache_join_group(parts);
    const bool twice = group != parts;
    const double joined = twice ? 2.0 * group : parts;
    const double of_join = (kJoin + kJoinOfRow * used) * (twice ? 1 + kSecondJoin : 1);
    const double join = cut ? of_join + joined * of_part : 0;
    return share * step + pieces * of_tile + join + 10 * tile_overhead + least;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (auto reason = not_sm90a(arch)) return reason;
    if (!spec.cache.v_in_k)
      return "v_in_k is 0; this template serves values that are the first columns of keys";
    if (spec.dtype_q != Dtype::kFp16 && spec.dtype_q != Dtype::kBf16)
      return fmt::format("dtype is {}; this template serves fp16 and bf16",
                         dtype_name(spec.dtype_q));
    if (spec.dtype_kv != spec.dtype_q && spec.dtype_kv != Dtype::kE4m3)
      return fmt::format(
          "dtype_kv is {}; this template serves caches of e4m3 or the dtype of q: {}",
          dtype_name(spec.dtype_kv), dtype_name(spec.dtype_q));
    if (spec.cache.kv_factors != KvFactors::kHeads && spec.cache.kv_factors != KvFactors::kLatent)
      return fmt::format("kv_factors is {}; this template serves heads and latent",
                         kv_factors_name(spec.cache.kv_factors));
    if (spec.head_dim_qk % kPanelColumns != 0)
      return fmt::format("head_dim_qk is {}; this template serves multiples of {}",
                         spec.head_dim_qk, kPanelColumns);
    if (spec.head_dim_v < kLeastHeadDimV || spec.head_dim_v % kStepOfV != 0)
      return fmt::format("head_dim_v is {}; this template serves multiples of {} from {}",
                         spec.head_dim_v, kStepOfV, kLeastHeadDimV);
    if (has_lists(spec) && spec.gqa_ratio > kWarpgroupRows && spec.gqa_ratio % kWarpgroupRows != 0)
      return fmt::format(
          "gqa_ratio is {}; with lists of keys this template serves groups of up to "
          "{} heads, or multiples of that",
          spec.gqa_ratio, kWarpgroupRows);
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& mla_sm90() {
  static const MlaSm90 instance;
  return instance;
}

}  // namespace attune
