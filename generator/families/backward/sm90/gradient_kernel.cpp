// SPDX-License-Identifier: Apache-2.0
// Registers and shared memory of the kernels; see gradient_kernel.hpp.
#include "generator/families/backward/sm90/gradient_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "templates/shared/layouts/backward_band_layout.h"
#include "templates/shared/layouts/backward_stored_layout.h"

namespace attune {
namespace {

// A consumer's registers for addresses, statistics and temporaries, besides accumulators.
constexpr int kOtherRegisters = 28;

// Returns the number of registers for dropout signs that wait for the elements of a step (found by
// trying which kernels spill).
int dropout_registers(const BackwardKernel& kernel) {
  if (kernel.makes == BackwardMakes::kAll) return 0;  // early loads leave room (backward_early)
  const int of_parts = kernel.splits_heads ? 4 : 0;   // which part, and where its sums go
  return std::max(0, kernel.tile.step_rows / 4 - 12) + of_parts;
}

}  // namespace

BackwardKernel backward_rows_kernel(const KernelSpec& spec, const RowsTile& tile,
                                    int stored_bytes) {
  return {.makes = BackwardMakes::kDq,
          .tile = {tile.block_m, tile.block_n, tile.k_slots, tile.v_slots, spec.head_dim_qk,
                   spec.head_dim_v, true, false},
          .accumulators = backward_sm90_accumulators(tile.block_n, spec.head_dim_qk),
          .widest = std::max(tile.block_n, spec.head_dim_qk),
          .stored_bytes = stored_bytes};
}

BackwardKernel backward_keys_kernel(const KernelSpec& spec, const KeysTile& tile,
                                    BackwardMakes makes) {
  const bool k = makes != BackwardMakes::kDv, v = makes != BackwardMakes::kDk;
  const int columns = (k ? spec.head_dim_qk : 0) + (v ? spec.head_dim_v : 0);
  return {.makes = makes,
          .tile = {tile.block_n, tile.block_m, tile.q_slots, tile.dout_slots, spec.head_dim_qk,
                   spec.head_dim_v, k, true},
          .accumulators =
              backward_sm90_accumulators(tile.block_m, columns) - (k ? 0 : tile.block_m / 2),
          .widest = std::max({tile.block_m, k ? spec.head_dim_qk : 0, v ? spec.head_dim_v : 0})};
}

int backward_shared_bytes(const BackwardKernel& kernel) {
  if (kernel.makes == BackwardMakes::kBand) return backward_band_layout().bytes;
  if (kernel.makes != BackwardMakes::kAll) return backward_sm90_layout(kernel.tile).bytes;
  const BackwardOneKernelLayout all = backward_one_kernel_layout(kernel.tile);
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

std::optional<std::string> broken_kernel(const BackwardKernel& kernel, const KernelSpec& spec,
                                         const Arch& arch) {
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

int64_t backward_tiles(const BackwardKernel& kernel, const Shape& shape) {
  const int64_t length = kernel.of_rows() ? shape.seqlen_q : shape.seqlen_kv;
  const int64_t heads = kernel.of_rows() ? shape.num_heads_q : shape.num_heads_kv;
  return (length + kernel.tile.stay_rows - 1) / kernel.tile.stay_rows * heads * shape.batch;
}

}  // namespace attune
