// SPDX-License-Identifier: Apache-2.0
// decode_sm80: op attention_kvcache on GPUs from sm_80 on. The kernel is
// templates/cuda/decode_sm80/decode_sm80.cu; README.md beside it explains the knobs.
//
// How a config is chosen for a problem:
// 1. refusal() returns why the family does not serve the spec, or nullopt. fit() tells whether
//    decode_sm80 or cache_sm90 is better for the shape.
// 2. space() returns the legal configs: the values of the knobs, and the rules before the class.
// 3. default_config() returns the config of space() with the least predicted_cost().
// 4. predicted_cost() needs the share of the busiest multiprocessor, from deal_of().
// 5. structure() and sizes() return the launch of a config.
// The tuner reads space() and predicted_cost() too, and times what it finds.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/core/ops/ops.hpp"
#include "generator/families/cheapest_config.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/served.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/key_factors.h"
#include "templates/shared/layouts/decode_chunks.h"
#include "templates/shared/layouts/decode_layout.h"
#include "templates/shared/layouts/decode_partition.h"
#include "templates/shared/nibble_rows.h"
#include "templates/shared/visibility.h"

namespace attune {
namespace {

constexpr int64_t kMostRows = 64;
constexpr int kStepOfHeadDims = 16;
constexpr int kRegistersOfSm = 65536, kMostRegisters = 255;
// Registers of a thread besides Q and O, as ptxas 13.0 allocates them: scores, addresses, the place
// in the list of pieces (DecodeWalk).
constexpr int kOtherRegisters = 80, kOtherRegistersOfScores = 90;
// for narrow caches; for factors per key or group of columns
constexpr int kRegistersOfConversions = 16, kRegistersOfFactors = 16;
constexpr int kMostValuesOf4Bits = 192;  // columns of O that leave registers for conversions
constexpr int kRegistersOfChunks = 8;    // addresses of 16 bytes each
constexpr int kRegistersOfPacking = 16;  // begins of rows and keys of a request
constexpr int kRegistersOfLists = 16;    // keys and pages of three tiles

enum Loads : int64_t { kChunks = 0, kRows = 1, kBoxes = 2, kTogether = 3 };

bool has_boxes(const Config& config) { return config.at("loads") >= kBoxes; }

// Returns the number of warps that share a ring: with TMA boxes over heads, the heads of a gang
// have one ring.
int warps_of_ring(const Config& config) {
  return config.at("loads") == kTogether ? as_int(config, "heads") : 1;
}

// Returns the columns of one warp.
DecodeColumns columns_of(const KernelSpec& spec) {
  return decode_columns(spec.head_dim_qk, spec.head_dim_v, spec.cache.v_in_k);
}
bool is_wide(const KernelSpec& spec) { return columns_of(spec).warps > 1; }
// True if all warps that share a head have as many columns, which are neighbours in the cache.
bool shares_are_equal(const KernelSpec& spec) {
  const DecodeColumns own = columns_of(spec);
  return !own.values_in_keys && own.qk * own.warps == spec.head_dim_qk &&
         own.v * own.warps == spec.head_dim_v;
}

// Returns the number of teams that read the same keys.
int teams_of_gang(const KernelSpec& spec, const Config& config) {
  return as_int(config, "heads") * columns_of(spec).warps;
}

// Returns the bytes of columns of a row of the cache.
int row_bytes(const KernelSpec& spec, int columns) {
  return stored_columns(spec.dtype_kv, columns) * dtype_bytes(spec.dtype_kv);
}

// Returns the bytes of a row of a panel, which a TMA box has.
int panel_bytes(const KernelSpec& spec) {
  return decode_panel_bytes(is_4_bit(spec.dtype_kv) ? 4 : 8 * dtype_bytes(spec.dtype_kv));
}

int slot_bytes(const KernelSpec& spec, const Config& config) {
  const int keys = as_int(config, "keys"), loads = as_int(config, "loads");
  const int lines = decode_lines_of_key(warps_of_ring(config));
  const DecodeColumns own = columns_of(spec);
  const int panel = panel_bytes(spec);
  return decode_tile_bytes(keys, row_bytes(spec, own.qk) * lines, loads, panel) +
         (own.values_in_keys
              ? 0
              : decode_tile_bytes(keys, row_bytes(spec, own.v) * lines, loads, panel));
}
// Returns the bytes of a slot for each warp that shares the ring.
int slot_bytes_of_warp(const KernelSpec& spec, const Config& config) {
  return slot_bytes(spec, config) / warps_of_ring(config);
}
int group_bytes(const KernelSpec& spec, const Config& config) {
  const int group = columns_of_factor(spec.cache.kv_factors);
  return group == 0
             ? 0
             : group_rows_bytes(as_int(config, "keys"), spec.head_dim_qk, spec.head_dim_v, group);
}
// Returns the bytes that a tile of one head reads. Rows without boxes include their padding, which
// puts them into different banks.
int bytes_of_tile(const KernelSpec& spec, const Config& config) {
  const int factors = group_bytes(spec, config);
  if (!has_boxes(config)) return slot_bytes(spec, config) * columns_of(spec).warps + factors;
  return as_int(config, "keys") * row_bytes(spec, spec.head_dim_qk + spec.head_dim_v) + factors;
}

// Returns the bytes per slot of the factors of keys, or of their groups of columns.
int factor_bytes(const KernelSpec& spec, const Config& config) {
  if (spec.cache.kv_factors == KvFactors::kHeads) return 0;
  const int groups = group_bytes(spec, config);
  return groups > 0 ? groups : decode_factor_bytes(as_int(config, "keys"));
}
bool has_key_factors(const KernelSpec& spec) { return spec.cache.kv_factors != KvFactors::kHeads; }

bool has_lists(const KernelSpec& spec) { return spec.cache.key_indices != KeyIndices::kNone; }

int columns_of_panel(const KernelSpec& spec) {
  return panel_bytes(spec) * 32 / row_bytes(spec, 32);
}
// True if rows of K are whole lines of 128 bytes, and more than one.
bool row_has_lines(const KernelSpec& spec) {
  const int columns = columns_of_panel(spec);
  return spec.head_dim_qk > columns && spec.head_dim_qk % columns == 0;
}

// Returns the most rows of an item. Only kernels of 4-bit caches have the knob.
int rows_of_item(const Config& config) { return static_cast<int>(config.get("rows", kDecodeRows)); }
// Returns the items of a request for one head of K.
int row_tiles(const Config& config, const KernelSpec& spec, const Shape& shape) {
  return decode_row_tiles(static_cast<int>(shape.seqlen_q), spec.gqa_ratio, rows_of_item(config));
}

int shared_bytes(const KernelSpec& spec, const Config& config) {
  const int warps = as_int(config, "warps"), kv_slots = as_int(config, "kv_slots");
  const int factors = factor_bytes(spec, config);
  const int keys = has_lists(spec) ? decode_key_bytes(as_int(config, "keys")) : 0;
  const DecodeColumns own = columns_of(spec);
  return decode_shared(warps, warps / warps_of_ring(config), kv_slots, slot_bytes(spec, config),
                       own.qk, rows_of_item(config),
                       decode_exchange_bytes(as_int(config, "keys"), own.warps))
             .bytes +
         warps * kv_slots * (factors + keys);
}

int register_limit(const Config& config) {
  const int warps = as_int(config, "warps") * as_int(config, "blocks_per_sm");
  return std::min(kMostRegisters, kRegistersOfSm / (32 * warps) / 8 * 8);
}

int registers_needed(const KernelSpec& spec, const Config& config) {
  const int others = is_scored(spec) ? kOtherRegistersOfScores : kOtherRegisters;
  const DecodeColumns own = columns_of(spec);
  const int rows = rows_of_item(config), tiles = rows / 8;
  const int of_q = decode_keeps_q(own.qk, rows) ? 0 : own.qk / 8 * tiles;
  const int conversions = (is_narrow(spec.dtype_kv) ? kRegistersOfConversions : 0) +
                          (has_key_factors(spec) ? kRegistersOfFactors : 0);
  const int loads = (config.at("loads") == kChunks ? kRegistersOfChunks : 0) +
                    (spec.cache.packed_q || spec.cache.packed_kv ? kRegistersOfPacking : 0) +
                    (has_lists(spec) ? kRegistersOfLists : 0);
  return std::min(kMostRegisters, of_q + own.v / 4 * tiles + as_int(config, "keys") / 4 * tiles +
                                      others + conversions + loads);
}

Constraint loads_suit(const KernelSpec& spec, const Arch& arch) {
  return {"loads",
          {"loads", "keys", "heads"},
          [spec, sm = arch.compute_capability](const Config& config) -> std::optional<std::string> {
            const int64_t loads = config.at("loads"), keys = config.at("keys");
            const int64_t heads = config.at("heads");
            if (loads != kChunks && has_lists(spec))
              return fmt::format("loads is {}; must be 0, since listed keys lie apart", loads);
            if (loads != kChunks && sm < 90)
              return fmt::format("loads is {}; sm_{} has neither bulk copies nor TMA", loads, sm);
            if (loads == kTogether && is_wide(spec))
              return fmt::format("loads is {}; warps share the columns of heads above {}", loads,
                                 kDecodeNarrowHead);
            if (loads != kChunks && is_wide(spec) && !shares_are_equal(spec))
              return fmt::format("loads is {}; must be 0, since warps have unequal columns", loads);
            if (loads == kTogether && has_key_factors(spec))
              return fmt::format("loads is {}; factors of keys belong to one head", loads);
            if (loads == kTogether && (heads < 2 || keys % heads != 0))
              return fmt::format("loads is {}; {} heads do not share {} keys", loads, heads, keys);
            if (!has_boxes(config)) return std::nullopt;
            const int columns = columns_of_panel(spec);
            const DecodeColumns own = columns_of(spec);
            if (own.qk % columns != 0 || own.v % columns != 0)
              return fmt::format("loads is {}; boxes have panels of {} columns", loads, columns);
            if (loads == kBoxes && spec.cache.page_size % keys != 0)
              return fmt::format("loads is {}; a page of {} keys holds no whole boxes of {}", loads,
                                 spec.cache.page_size, keys);
            return std::nullopt;
          }};
}

std::optional<std::string> memory_lacks(const KernelSpec& spec, const Arch& arch,
                                        const Config& config) {
  const int bytes = shared_bytes(spec, config);
  const int64_t blocks = config.at("blocks_per_sm");
  if (bytes <= arch.shared_bytes_per_block &&
      blocks * (bytes + reserved_shared_bytes(arch)) <= arch.shared_bytes_per_sm)
    return std::nullopt;
  return fmt::format("{} blocks of {} bytes of shared memory do not fit {}", blocks, bytes,
                     arch.name());
}

Constraint memory_suffices(const KernelSpec& spec, const Arch& arch) {
  return {"shared memory",
          {"warps", "keys", "kv_slots", "blocks_per_sm", "loads", "heads", "rows"},
          [spec, arch](const Config& config) { return memory_lacks(spec, arch, config); }};
}

// Returns the only team size for a batch_invariant spec, since the number of warps that share a
// piece affects bits. It is the largest for which a block has enough memory and registers.
int64_t team_of_own_bits(const KernelSpec& spec, const Arch& arch) {
  for (const int64_t team : {4, 2}) {
    const int64_t warps = team * columns_of(spec).warps;
    const Config least({{"warps", warps},
                        {"keys", 16},
                        {"kv_slots", 2},
                        {"blocks_per_sm", 1},
                        {"loads", kChunks}});
    if (!memory_lacks(spec, arch, least) && registers_needed(spec, least) <= register_limit(least))
      return team;
  }
  return 1;
}

// Allows waits only if a block has one range. Blocks start in order, so such a block only waits for
// blocks before it.
Constraint one_gang_waits(const KernelSpec& spec) {
  return {"waits",
          {"warps", "team", "heads", "waits"},
          [spec](const Config& config) -> std::optional<std::string> {
            const int64_t gangs =
                config.at("warps") / (config.at("team") * teams_of_gang(spec, config));
            if (config.at("waits") == 0 || gangs == 1) return std::nullopt;
            return fmt::format(
                "waits is 1; must be 0, because a block of {} gangs has several ranges", gangs);
          }};
}

Constraint teams_fill_blocks(const KernelSpec& spec) {
  return {"team",
          {"warps", "team", "heads"},
          [spec](const Config& config) -> std::optional<std::string> {
            const int64_t warps = config.at("warps"), team = config.at("team");
            if (warps % (team * teams_of_gang(spec, config)) == 0) return std::nullopt;
            const int of_head = columns_of(spec).warps;
            return fmt::format(
                "team is {} and heads is {}; their product{} must divide the {} warps", team,
                config.at("heads"),
                of_head > 1 ? fmt::format(", times {} warps that share a head,", of_head) : "",
                warps);
          }};
}

Constraint registers_suffice(const KernelSpec& spec) {
  return {"registers",
          {"warps", "keys", "blocks_per_sm", "loads", "rows"},
          [spec](const Config& config) -> std::optional<std::string> {
            const int needed = registers_needed(spec, config), limit = register_limit(config);
            if (needed <= limit) return std::nullopt;
            return fmt::format("a thread needs about {} registers; this many warps leave it {}",
                               needed, limit);
          }};
}

// A partition of the work: working gangs, the most tiles and pieces of a gang, and parts per item.
struct Deal {
  double gangs, tiles, pieces, parts;
};

int64_t gangs_of(const Config& config, const KernelSpec& spec, const DeviceFacts& device) {
  return device.sm_count * config.at("blocks_per_sm") *
         (config.at("warps") / (config.at("team") * teams_of_gang(spec, config)));
}
// Returns the number of groups of items; a gang takes a group together.
int64_t groups_of(const Config& config, const KernelSpec& spec, const Shape& shape) {
  const int64_t heads = config.at("heads");
  return std::max<int64_t>(
      1, shape.batch * ((shape.num_heads_kv + heads - 1) / heads) * row_tiles(config, spec, shape));
}
int64_t tiles_of(const Config& config, const Shape& shape) {
  return (shape.seqlen_kv + config.at("keys") - 1) / config.at("keys");
}

// Returns the shape with as many keys as the tiles have that the rows of a request see.
Shape seen_shape(const KernelSpec& spec, const Config& config, Shape shape) {
  if (has_lists(spec)) return shape;
  const auto [first, last] =
      keys_of_rows(spec, shape, int64_t{0}, std::max<int64_t>(shape.seqlen_q, 1) - 1);
  const int64_t begin = first / config.at("keys") * config.at("keys");
  shape.seqlen_kv = std::max<int64_t>(1, last + 1 - begin);
  return shape;
}

// Partitions requests of one length as shared/layouts/decode_partition.h does.
Deal deal_of(const Config& config, const KernelSpec& spec, const Shape& shape,
             const DeviceFacts& device) {
  const int64_t gangs = gangs_of(config, spec, device), groups = groups_of(config, spec, shape);
  const int64_t tile_overhead = config.at("tile_overhead"), least = config.at("min_tiles");
  const int64_t longest = tiles_of(config, shape) + tile_overhead;
  const int64_t share = std::max(least, (groups * longest + gangs - 1) / gangs);
  if (groups <= gangs) {
    const int64_t parts = std::max<int64_t>(1, std::min(gangs / groups, longest / least));
    const int64_t alike = (longest + parts - 1) / parts;
    const int64_t teams_of_sm =
        config.at("blocks_per_sm") * (config.at("warps") / config.at("team"));
    if (alike <=
        share + decode_even_slack(static_cast<int>(teams_of_sm) * slot_bytes_of_warp(spec, config)))
      return {static_cast<double>(groups * parts),
              static_cast<double>(alike) -
                  static_cast<double>(tile_overhead) / static_cast<double>(parts),
              1, static_cast<double>(parts)};
  }
  const double of_item = static_cast<double>(share) / static_cast<double>(longest);
  return {static_cast<double>(std::min(gangs, (groups * longest + share - 1) / share)),
          static_cast<double>(share) *
              (1 - static_cast<double>(tile_overhead) / static_cast<double>(longest)),
          1 + of_item, 1 / of_item + (of_item < 1 ? 1 : 0.5)};
}
// Partitions as shared/layouts/decode_chunks.h does.
Deal deal_of_chunks(const Config& config, const KernelSpec& spec, const Shape& shape,
                    const DeviceFacts& device) {
  const int tiles = static_cast<int>(tiles_of(config, shape));
  const int least = kLeastChunkKeys / as_int(config, "keys");
  const int parts = decode_chunks(tiles, least);
  const auto gangs = static_cast<double>(gangs_of(config, spec, device));
  const double chunks = static_cast<double>(groups_of(config, spec, shape)) * parts;
  const double pieces = std::ceil(chunks / gangs);
  return {std::min(gangs, chunks), pieces * chunk_tiles(tiles, least), pieces,
          static_cast<double>(parts)};
}

// Returns microseconds of an H200 that a warp takes for a tile of 4 bits, whose conversions take
// longer than its loads. Fitted to 167 trials of three shapes.
double step_of_4_bits(const KernelSpec& spec, const Config& config) {
  double step = (config.at("rows") == 8 ? 0.24 : 0.38) + 0.034 * as_int(config, "keys");
  if (spec.dtype_kv == Dtype::kE2m1) step *= 1.1;
  if (spec.cache.kv_factors == KvFactors::kColumns16) step *= 1.12;
  if (config.at("loads") == kRows || config.at("loads") == kTogether) step *= 2;
  if (config.at("warps") * config.at("blocks_per_sm") > 8) step *= 1.5;  // few registers are left
  return step * (spec.head_dim_qk + spec.head_dim_v) / 256;
}

class DecodeSm80 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "decode_sm80"; }
  std::string_view source_path() const override { return "cuda/decode_sm80/decode_sm80.cu"; }
  std::string_view knobs_path() const override { return "cuda/decode_sm80/decode_sm80_knobs.cuh"; }
  const Served& serves() const override { return serves_lists(); }
  bool applies_whole_programs() const override { return true; }
  // The kernel reads keys again for each 16 rows. With batch_invariant another family takes all
  // longer requests, because the choice must not depend on which family is faster.
  Fit fit(const KernelSpec& spec, const Shape& shape) const override {
    const int64_t rows = shape.seqlen_q * spec.gqa_ratio;
    if (has_lists(spec)) return Fit::kWell;  // each row has keys of its own
    if (is_wide(spec)) return Fit::kWell;    // of other families only mla_sm90 serves some
    if (spec.cache.batch_invariant) return rows <= kDecodeRows ? Fit::kWell : Fit::kNever;
    return rows <= kDecodeRows ? Fit::kWell : rows <= kMostRows ? Fit::kPoorly : Fit::kNever;
  }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    using Values = std::vector<int64_t>;
    const bool own_bits = spec.cache.batch_invariant;  // tiles and joins affect bits
    const Values keys = own_bits ? Values{16} : Values{16, 32};
    const Values teams = own_bits ? Values{team_of_own_bits(spec, arch)} : Values{1, 2, 4, 8, 16};
    std::vector<Knob> knobs{
        {"loads",
         {2, 3, 1, 0},
         "0: cp.async, 1: a bulk copy per row, 2: TMA boxes of keys, 3: TMA boxes of heads"},
        {"keys", keys, "keys per tile"},
        {"warps", {8, 4, 12, 16, 2}, "warps per block"},
        {"team", teams, "warps that share a piece"},
        {"heads", {1, 2, 4, 8}, "teams that read the same keys, each for one head"},
        {"kv_slots", {2, 3, 4, 6}, "tiles in flight per warp"},
        {"blocks_per_sm", {1, 2, 3}, "minimum of resident blocks per multiprocessor"},
        {"min_tiles", own_bits ? Values{8} : Values{8, 2, 4, 16}, "minimum of tiles per team"},
        {"tile_overhead", own_bits ? Values{4} : Values{4, 1, 8},
         "overhead of a work item, in tiles"},
        {"waits", own_bits ? Values{0} : Values{0, 1},
         "parts are joined by 0: the last team to finish, 1: the team of the first part, which "
         "waits"}};
    if (is_4_bit(spec.dtype_kv))
      knobs.insert(knobs.begin() + 1,
                   {"rows", own_bits ? Values{16} : Values{8, 16}, "most rows of Q of an item"});
    return SearchSpace(std::move(knobs),
                       {loads_suit(spec, arch), teams_fill_blocks(spec), one_gang_waits(spec),
                        registers_suffice(spec), memory_suffices(spec, arch)});
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_config(*this, spec, arch, shape, device);
  }

  Resources resources(const KernelSpec& spec, const Arch&, const Config& config) const override {
    return {.threads = 32 * as_int(config, "warps"),
            .shared_bytes = shared_bytes(spec, config),
            .max_registers = register_limit(config),
            .min_blocks_per_sm = as_int(config, "blocks_per_sm")};
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch& arch,
                                        const Config& config) const override {
    std::vector<Constant> constants{bool_constant("kIsScored", is_scored(spec)),
                                    bool_constant("kStartsEarly", arch.compute_capability >= 90),
                                    bool_constant("kValuesInKeys", spec.cache.v_in_k)};
    if (is_wide(spec)) constants.push_back({"bool", "kWideHeads", "true"});
    if (has_boxes(config)) constants.push_back({"bool", "kTensorBoxes", "true"});
    if (!config.has("rows")) constants.push_back({"int", "kRows", std::to_string(kDecodeRows)});
    return constants;
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    StepStructure step{.parts = attention_parts(spec),
                       .threads = 32u * static_cast<unsigned>(config.at("warps")),
                       .shared_bytes = static_cast<unsigned>(shared_bytes(spec, config))};
    step.parts.push_back(ArgumentPart::kCache);
    if (has_lists(spec)) step.parts.push_back(ArgumentPart::kLists);
    if (is_4_bit(spec.dtype_kv)) step.parts.push_back(ArgumentPart::kGroups);
    step.early = true;  // with griddepcontrol, waits for the previous grid
    const bool together = config.at("loads") == kTogether;
    if (has_boxes(config))
      for (const Operand operand : {Operand::kK, Operand::kV})
        step.tensor_maps.push_back(
            {.tensor = operand,
             .box_columns = stored_columns(spec.dtype_kv, columns_of_panel(spec)),
             .box_rows = together ? 1 : as_int(config, "keys"),
             .swizzle_bytes = panel_bytes(spec),
             .box_heads = warps_of_ring(config),
             .fetches_around = false,
             .of_pages = true});
    return {.steps = {step},
            .workspace = {{.name = "tickets", .zeroed = true},
                          {.name = "parts", .zeroed = config.at("waits") != 0}}};
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& of_call,
                    const DeviceFacts& device) const override {
    const Shape shape = line_shape(spec, of_call);
    const int64_t blocks = device.sm_count * config.at("blocks_per_sm");
    const int64_t teams = blocks * (config.at("warps") / config.at("team"));
    const int64_t items = shape.batch * shape.num_heads_kv * row_tiles(config, spec, shape);
    const int64_t keys = config.at("keys");
    const int64_t tiles = (shape.seqlen_kv + keys - 1) / keys;
    // The kernel counts positions along all tiles.
    tile_count(items * (tiles + config.at("tile_overhead")));
    const int64_t shares = columns_of(spec).warps;
    int64_t slots = 2 * teams;
    if (spec.cache.batch_invariant) {
      const int64_t heads = config.at("heads");
      slots = items / shape.num_heads_kv * ((shape.num_heads_kv + heads - 1) / heads) * heads *
              shares *
              most_chunks(static_cast<int>(tiles), static_cast<int>(kLeastChunkKeys / keys));
    }
    return {.steps = {{.grid_x = grid_extent(blocks)}},
            .workspace = {{.columns = items * shares},
                          {.columns = decode_part_floats(
                               decode_part_rows(static_cast<int>(shape.seqlen_q), spec.gqa_ratio,
                                                rows_of_item(config)),
                               columns_of(spec).v),
                           .rows = slots}}};
  }

  // Returns microseconds of an H200, fitted to trials of bf16 and e4m3 caches of 1024 to 131072
  // keys. The time is what the busiest multiprocessor reads, at a rate that depends on bytes in
  // flight, or the longest chain of a warp's work. The ends of pieces and joins are added.
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& of_call, const DeviceFacts& device) const override {
    const Shape shape = seen_shape(spec, config, line_shape(spec, of_call));
    const double heads = as_int(config, "heads"), team = as_int(config, "team");
    const double warps = as_int(config, "warps"), kv_slots = as_int(config, "kv_slots");
    const double blocks_of_sm = as_int(config, "blocks_per_sm"), slot = bytes_of_tile(spec, config);
    const Deal deal = spec.cache.batch_invariant ? deal_of_chunks(config, spec, shape, device)
                                                 : deal_of(config, spec, shape, device);
    const double blocks = static_cast<double>(device.sm_count) * blocks_of_sm;
    const double gangs_of_sm =
        deal.gangs > blocks ? std::ceil(deal.gangs / blocks) * blocks_of_sm
                            : std::min(std::ceil(deal.gangs / device.sm_count), blocks_of_sm);
    constexpr double kBytesOfSm = 35e3, kEnough = 101e3, kChain = 0.38, kLatency = 0.58;
    const double under_way = gangs_of_sm * heads * team * kv_slots * slot;
    double rate = kBytesOfSm * std::min(1.0, std::pow(under_way / kEnough, 0.6)) *
                  (1 + 0.008 * std::log2(heads) - 0.01 * std::max(0.0, under_way / kEnough - 2));
    if (config.at("loads") == kRows) rate *= 0.86;
    const bool chunks = config.at("loads") == kChunks;
    if (chunks) rate *= row_has_lines(spec) ? 0.97 : 0.93;
    if (chunks && spec.cache.page_size % 4 != 0)
      rate *= 1.014 - 0.014 * std::log2(std::max(2.0, heads));
    if (config.at("loads") == kTogether) rate *= 0.89 + 0.022 * std::log2(heads);
    rate *= 1 - 0.01 * (blocks_of_sm - 1);
    if (warps * blocks_of_sm > 8)
      rate *= 0.97;  // few registers are left, and more warps gain nothing
    if (warps * blocks_of_sm < 4) rate *= 0.8;  // for parts with little shared memory
    const double stream = gangs_of_sm * heads * deal.tiles * slot / rate;
    const double step = is_4_bit(spec.dtype_kv)
                            ? step_of_4_bits(spec, config)
                            : std::max(kChain * as_int(config, "keys") / 16, kLatency / kv_slots);
    const double chain = deal.tiles / team * step;
    // Waiting saves time if all parts end at once.
    const double meets = config.at("waits") != 0 && deal.pieces == 1 ? 1.8 : 2.7;
    const double joins = deal.parts > 1 ? meets + deal.parts / team / 3 : 0;
    return std::max(stream, chain) + 0.2 * std::min(stream, chain) +
           deal.pieces * (2.1 + 0.05 * team) + joins;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability < 80)
      return fmt::format("{} has no cp.async; this template serves sm_80 and later", arch.name());
    if (spec.dtype_q != Dtype::kFp16 && spec.dtype_q != Dtype::kBf16)
      return fmt::format("dtype is {}; this template serves fp16 and bf16",
                         dtype_name(spec.dtype_q));
    const bool converts = spec.dtype_kv == Dtype::kE4m3 || spec.dtype_kv == Dtype::kE5m2;
    if (converts && arch.compute_capability < 89)
      return fmt::format("dtype_kv is {}; {} cannot convert it, sm_89 and later can",
                         dtype_name(spec.dtype_kv), arch.name());
    if (spec.cache.kv_factors == KvFactors::kLatent)
      return "kv_factors is latent; this template serves factors that are operands";
    for (const auto& [field, value] :
         {std::pair{"head_dim_qk", spec.head_dim_qk}, {"head_dim_v", spec.head_dim_v}})
      if (value % kStepOfHeadDims != 0)
        return fmt::format("{} is {}; this template serves multiples of {}", field, value,
                           kStepOfHeadDims);
    if (is_4_bit(spec.dtype_kv) && (is_wide(spec) || spec.head_dim_v > kMostValuesOf4Bits))
      return fmt::format(
          "dtype_kv is {}, head_dim_qk {} and head_dim_v {}; this template serves 4-bit caches up "
          "to "
          "{} and {}",
          dtype_name(spec.dtype_kv), spec.head_dim_qk, spec.head_dim_v, kDecodeNarrowHead,
          kMostValuesOf4Bits);
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& decode_sm80() {
  static const DecodeSm80 instance;
  return instance;
}

}  // namespace attune
