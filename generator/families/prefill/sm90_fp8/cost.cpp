// SPDX-License-Identifier: Apache-2.0
// Clocks of one step with 8-bit operands; the rest of the launch follows prefill_sm90's model.
#include "generator/families/prefill/sm90_fp8/cost.hpp"

#include <cmath>

#include "generator/families/prefill/sm90/cost.hpp"
#include "templates/shared/layouts/prefill_sm90_fp8_layout.h"

namespace attune {
namespace {

// Per multiprocessor and clock (sm_90).
constexpr double kMmaFlops = 8192;  // dense 8-bit
constexpr double kExponentials = 16;
constexpr double kOverlapPower = 1.56;  // as in sm90/cost.cpp; it fits here too

// Returns the cost factor of a step besides its products and exponentials.
double tile_factor(const KernelSpec& spec, const Config& c) {
  const int64_t warpgroups = c.at("block_m") / kWarpgroupRows;
  const int64_t resident = warpgroups * c.at("ctas_per_sm");
  double factor = 1 + 9.0 / static_cast<double>(c.at("block_n"));
  if (resident == 1) factor *= 1.6;
  if (resident == 2) factor *= spec.head_dim_v <= 64 ? 1.2 : spec.head_dim_v <= 128 ? 1.13 : 1.05;
  if (resident == 4)
    factor *= c.at("ctas_per_sm") == 1 ? (c.at("row_max") ? 0.97 : 0.98)
                                       : (c.at("row_max") ? 0.98 : 1.03);
  if (c.at("block_m") == 64) factor *= spec.head_dim_v > 64 ? 1.2 : 1.12;
  if (!c.at("overlap")) factor *= resident <= 3 ? 1.25 : 1.08;
  return factor;
}

// Returns the cost factor if idle warps transpose V: they take shared memory bandwidth from wgmma.
double inside_factor(const KernelSpec& spec) { return spec.head_dim_v <= 128 ? 1.1 : 1.25; }

// Returns the clocks of the preceding kernel, which writes V^T: it is bound by memory.
double transposing_clocks(const KernelSpec& spec, const Shape& shape, const DeviceFacts& device) {
  constexpr double kClocksPerByte = 6.8e-4;           // on an H200,
  constexpr double kMemoryBytesPerSecond = 4.917e12;  // which has this rate
  const double slower =
      device.memory_bytes_per_s > 0 ? kMemoryBytesPerSecond / device.memory_bytes_per_s : 1;
  return kClocksPerByte * slower *
         static_cast<double>(shape.batch * shape.num_heads_kv * shape.seqlen_kv * spec.head_dim_v);
}

// Returns a factor for choices that matter little compared with the tile; usual losers rank last.
double variant_penalty(const KernelSpec& spec, const Shape& shape, const Config& c,
                       const DeviceFacts& device) {
  const bool masked = spec.mask != Mask::kNone;
  double factor = 1;
  if (c.at("stages") > 2) factor *= 1.04;
  if (!c.at("o_staging")) factor *= 1.01;
  if (c.at("kv_ring")) factor *= 1.04;
  factor *= sm90_section_factor(spec, c, shape, device);
  if (c.at("scheduler") == 0 && c.at("kv_splits") == 1) factor *= 1.02;
  if (c.at("scheduler") == (masked ? 1 : 2)) factor *= 1.02;
  const bool turns_win = spec.head_dim_v <= 128 && c.at("row_max") == 0 && c.at("block_m") <= 192;
  if (c.at("block_m") > 64 && c.at("overlap") && (c.at("ping_pong") != 0) != turns_win)
    factor *= 1.02;
  if (c.at("row_max")) factor *= 0.95;
  if (!c.at("early")) factor *= 1.03;
  const int block_n = static_cast<int>(c.at("block_n"));
  const int64_t flush_keys = c.at("flush_keys");
  if (flush_keys > 0 && shape.seqlen_kv > flush_keys)
    factor *= 1 + 0.45 * block_n / static_cast<double>(flush_keys);
  const int groups = block_n / columns_of_factor(block_n, spec.fp8.scale_block_kv);
  if (groups > 1) factor *= 1.1 + 0.01 * groups;
  return factor;
}

}  // namespace

double sm90_fp8_predicted_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                                 const DeviceFacts& device) {
  const double elements = static_cast<double>(config.at("block_m") * config.at("block_n"));
  const double mma = elements * 2 * (spec.head_dim_qk + spec.head_dim_v) / kMmaFlops;
  const double exponentials = elements / kExponentials;
  const double busy = std::pow(std::pow(mma, kOverlapPower) + std::pow(exponentials, kOverlapPower),
                               1 / kOverlapPower);
  const bool inside = config.at("transpose_inside") != 0;
  const double step = busy * tile_factor(spec, config) * (inside ? inside_factor(spec) : 1) *
                      static_cast<double>(config.at("ctas_per_sm")) *
                      variant_penalty(spec, shape, config, device);
  return sm90_launch_clocks(spec, config, shape, device, step) +
         (inside ? 0 : transposing_clocks(spec, shape, device));
}

}  // namespace attune
