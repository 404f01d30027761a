// SPDX-License-Identifier: Apache-2.0
// The knobs of backward_sm90 and their rules.
#include "generator/families/backward/backward_sm90_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "generator/families/backward/made_gradients.hpp"
#include "templates/shared/layouts/backward_band_layout.h"
#include "templates/shared/layouts/backward_stored_layout.h"

namespace attune {
namespace {

// A consumer's registers for addresses, statistics and temporaries, besides accumulators.
constexpr int kOtherRegisters = 28;

using Broken = std::optional<std::string>;

// True if the spec permits the knob `band`: a single kernel that computes dq, dk and dv while it
// walks along the band of visible keys. knobs() also requires that all three are requested.
bool walks(const KernelSpec& spec) {
  return is_narrow_band(spec) && spec.gqa_ratio == 1 && spec.dropout == 0 &&
         !spec.backward.accumulate && std::max(spec.head_dim_qk, spec.head_dim_v) <= kBandHeadDim;
}

// Returns the knobs; knobs of an absent kernel have one value.
std::vector<Knob> knobs(const KernelSpec& spec) {
  const auto values = [](bool there, std::vector<int64_t> all) {
    if (!there) all.resize(1);
    return all;
  };
  const bool rows = makes(spec, Gradients::kQ), keys = makes_keys(spec);
  const bool both = makes(spec, Gradients::kK) && makes(spec, Gradients::kV);
  const bool stores = rows && makes(spec, Gradients::kK) && !spec.backward.accumulate;
  const bool fuses = rows && both && !spec.backward.accumulate &&
                     !(spec.dropout > 0 && spec.backward.deterministic);
  return {
      {"block_m", values(rows, {128, 192, 64}), "stationary rows of q, 64 per warpgroup"},
      {"block_n", values(rows, {48, 32, 64, 80, 96, 112, 128}), "keys per step of dq"},
      {"k_slots", values(rows, {2, 3}), "tiles of k in shared memory"},
      {"v_slots", values(rows, {1, 2, 3}), "tiles of v in shared memory"},
      {"key_block_n", values(keys, {128, 192, 64}), "stationary keys, 64 per warpgroup"},
      {"key_block_m", values(keys, {32, 48, 64, 80, 96, 112, 128}), "rows per step of dk and dv"},
      {"q_slots", values(keys, {2, 3}), "tiles of q in shared memory"},
      {"dout_slots", values(keys, {1, 2, 3}), "tiles of dout in shared memory"},
      {"split_kv", values(both, {0, 1}), "separate kernels for dk and dv"},
      {"fold_sums", values(rows, {0, 1}),
       "the kernel of dq computes delta, instead of a separate step"},
      {"fuse_dq", values(fuses, {0, 16, 4, 32, 8}),
       "the kernel of dk and dv also computes dq, for this many heads at a time"},
      {"draw_tiles", values(fuses, {0, 1}),
       "with fuse_dq: persistent blocks with dynamic scheduling"},
      {"store_ds", values(stores, {0, 1}),
       "dk and dv are computed from ds and p, which the kernel of dq stores in the workspace"},
      {"band", values(rows && both && walks(spec), {0, 1}),
       "one kernel walks along the narrow band of a window, with every gradient in registers"},
      {"ordered", values(fuses && !spec.backward.deterministic, {1, 0}),
       "with fuse_dq: blocks add to dq in the order of keys, for equal bits in every run"}};
}

// Returns the number of registers for dropout signs that wait for the elements of a step (found by
// trying which kernels spill).
int dropout_registers(const BackwardKernel& kernel) {
  if (kernel.makes == BackwardMakes::kAll) return 0;  // early loads leave room (backward_early)
  return std::max(0, kernel.tile.step_rows / 4 - 12);
}

Broken broken_kernel(const BackwardKernel& kernel, const KernelSpec& spec, const Arch& arch) {
  const PrefillSm90Registers registers = backward_registers(kernel);
  const int others = kOtherRegisters + (spec.dropout > 0 ? dropout_registers(kernel) : 0);
  const int most = (registers.moved ? registers.consumer : registers.launch) - others;
  if (kernel.accumulators > most)
    return fmt::format("accumulators take {} registers of at most {}", kernel.accumulators, most);
  if (kernel.widest / 2 > registers.launch - 24)
    return fmt::format("one wgmma has {} accumulators; a launch of {} registers holds {}",
                       kernel.widest / 2, registers.launch, registers.launch - 24);
  const int bytes = backward_shared_bytes(kernel);
  if (bytes > arch.shared_bytes_per_block)
    return fmt::format("needs {} bytes of shared memory; a block has {}", bytes,
                       arch.shared_bytes_per_block);
  return std::nullopt;
}

// Checks the rules of the fused kernel: two warpgroups share dq, by columns of 64 or by rows of 64,
// or one warpgroup has all of it.
Broken broken_fusion(const KernelSpec& spec, const Config& c) {
  if (!fuses_dq(c) && c.at("draw_tiles") != 0) return "draw_tiles 1 needs fuse_dq";
  if (!fuses_dq(c) && c.at("ordered") == 0) return "ordered 0 needs fuse_dq";
  if (!fuses_dq(c)) return std::nullopt;
  if (spec.dropout > 0 && c.at("ordered") != 0) return "fuse_dq with dropout needs ordered 0";
  if (c.at("split_kv") != 0) return "fuse_dq needs split_kv 0";
  if (c.at("key_block_n") != 2 * kWarpgroupRows)
    return fmt::format("fuse_dq needs key_block_n {}", 2 * kWarpgroupRows);
  const int64_t rows = c.at("key_block_m");
  const bool ordered = c.at("ordered") != 0;
  if (rows % kWarpgroupRows != 0 && (ordered || spec.head_dim_qk != 2 * kPanelColumns))
    return fmt::format(
        "fuse_dq needs key_block_m {} or {}; with head_dim_qk {} and ordered 0 any will do",
        kWarpgroupRows, 2 * kWarpgroupRows, 2 * kPanelColumns);
  const int multiple = has_dq_warpgroup(spec, c) ? kPanelColumns / 2 : 2 * kPanelColumns;
  if (rows == kWarpgroupRows && spec.head_dim_qk % multiple != 0)
    return fmt::format("fuse_dq with key_block_m {} needs a multiple of {} as head_dim_qk", rows,
                       multiple);
  if (spec.head_dim_qk % 16 != 0) return "fuse_dq needs a head_dim_qk that is a multiple of 16";
  return std::nullopt;
}

// Checks the rules of store_ds. Kernels that make dK and dV from stored values take 64 rows per
// step.
Broken broken_store(const Config& c) {
  if (!stores_ds(c)) return std::nullopt;
  if (fuses_dq(c)) return "store_ds needs fuse_dq 0";
  for (const auto& [knob, value] : {std::pair{"split_kv", 0}, {"fold_sums", 0}, {"dout_slots", 1}})
    if (c.at(knob) != value) return fmt::format("store_ds needs {} {}", knob, value);
  if (c.at("key_block_m") != kWarpgroupRows)
    return fmt::format("store_ds needs key_block_m {}", kWarpgroupRows);
  return std::nullopt;
}

// True for knobs of the rows kernel, which have one value if there is no such kernel.
bool is_of_rows(std::string_view knob) {
  return knob == "block_m" || knob == "block_n" || knob == "k_slots" || knob == "v_slots" ||
         knob == "fold_sums";
}

Broken broken_rest(const KernelSpec& spec, const Config& c) {
  if (!fuses_dq(c)) return std::nullopt;
  for (const Knob& knob : knobs(spec))
    if (is_of_rows(knob.name) && c.at(knob.name) != knob.values.front())
      return fmt::format("fuse_dq needs {} {}", knob.name, knob.values.front());
  return std::nullopt;
}

std::vector<Constraint> rules(const KernelSpec& spec, const Arch& arch) {
  std::vector<Constraint> all;
  if (makes(spec, Gradients::kQ))
    all.push_back({"rows", {"block_m", "block_n", "k_slots", "v_slots"}, [=](const Config& c) {
                     return broken_kernel(backward_rows_kernel(spec, c), spec, arch);
                   }});
  if (makes_keys(spec))
    all.push_back({"keys",
                   {"key_block_n", "key_block_m", "q_slots", "dout_slots", "split_kv", "fuse_dq",
                    "draw_tiles", "ordered", "store_ds", "band"},
                   [=](const Config& c) {
                     Broken broken = broken_fusion(spec, c);
                     for (const BackwardKernel& kernel : backward_keys_kernels(spec, c))
                       if (!broken) broken = broken_kernel(kernel, spec, arch);
                     return broken;
                   }});
  all.push_back({"stored",
                 {"key_block_m", "dout_slots", "split_kv", "fold_sums", "fuse_dq", "store_ds"},
                 broken_store});
  all.push_back({"fused",
                 {"block_m", "block_n", "k_slots", "v_slots", "fold_sums", "fuse_dq"},
                 [=](const Config& c) { return broken_rest(spec, c); }});
  if (!walks(spec)) return all;
  for (const Knob& knob : knobs(spec)) {  // kernels with band have no other choices
    if (knob.name == "band") continue;
    const int64_t value = knob.name == "key_block_m" ? kBandTile
                          : knob.name == "fold_sums" ? 1
                                                     : knob.values.front();
    all.push_back(
        {"band", {knob.name, "band"}, [name = knob.name, value](const Config& c) -> Broken {
           if (!walks_band(c) || c.at(name) == value) return std::nullopt;
           return fmt::format("band needs {} {}", name, value);
         }});
  }
  return all;
}

}  // namespace

int backward_shared_bytes(const BackwardKernel& kernel) {
  if (kernel.makes == BackwardMakes::kBand) return backward_band_layout().bytes;
  if (kernel.makes != BackwardMakes::kAll) return backward_sm90_layout(kernel.tile).bytes;
  const BackwardFusedLayout all = backward_fused_layout(kernel.tile);
  if (!kernel.ordered)
    return backward_unordered_layout(all, kernel.tile.step_rows, kernel.tile.head_dim_qk).bytes;
  return kernel.dq_warpgroup ? backward_dq_warpgroup_bytes(all, kernel.tile.ds_slots) : all.bytes;
}

PrefillSm90Registers backward_registers(const BackwardKernel& kernel) {
  if (kernel.makes == BackwardMakes::kBand) return kBandRegisters;
  if (kernel.dq_warpgroup)
    return {kDqWarpgroupRegisters.launch, kDqWarpgroupRegisters.keys,
            kDqWarpgroupRegisters.producer, true};
  const int warpgroups = kernel.tile.stay_rows / kWarpgroupRows;
  return kernel.of_stored() ? backward_stored_registers(warpgroups)
                            : backward_sm90_registers(warpgroups);
}

SearchSpace backward_sm90_space(const KernelSpec& spec, const Arch& arch) {
  return {knobs(spec), rules(spec, arch)};
}

}  // namespace attune
