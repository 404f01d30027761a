// SPDX-License-Identifier: Apache-2.0
// The compiled config of a warp-specialised sm_90 kernel, as constants: roles, shared-memory
// layout, registers.
#pragma once

#include "cuda/parts/none/cache_features.cuh"
#include "cuda/sm90/none/features.cuh"
#include "shared/attention_enums.h"
#include "shared/layouts/mla_sm90_layout.h"  // where kMla, else none/
#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

constexpr bool kNarrowOperands = !kMla && (kDtypeKv == Dtype::kE4m3 || kDtypeKv == Dtype::kE5m2);
constexpr int kOperandBytes = kNarrowOperands ? 1 : 2;
constexpr PrefillSm90Config kSm90Config = {
    kBlockM,   kBlockN,       kBlocksPerSm,        kKvSlots,
    kKvRing,   kKParts,       kOStaging,           kHeadDimQk,
    kHeadDimV, kOperandBytes, kTransposeInside > 0};
constexpr int kCodeBytes =
    mla_code_bytes(kHeadDimQk, mla_consumers(kRows) * kHeadDimV, kConvertsKeys, kLatentRows);
constexpr MlaSm90Layout kMlaLayout = mla_sm90_layout(kHeadDimQk, kRows, kKeyLists, kCodeBytes);
constexpr PrefillSm90Layout kLayout = kMla ? kMlaLayout.parts : prefill_sm90_layout(kSm90Config);
constexpr int kWarpgroups = kBlockM / kWarpgroupRows;
constexpr int kIdleWarps = kWarpgroupThreads / 32 - 1;                 // in the producing warpgroup
constexpr int kConsumers = kMla ? mla_consumers(kRows) : kWarpgroups;  // warpgroups
constexpr int kThreads =
    (kMla ? mla_warpgroups(kRows, kConvertsKeys) : kConsumers + 1) * kWarpgroupThreads;
constexpr PrefillSm90Registers kRegisters =
    kConvertsKeys ? gather_group_registers(kConsumers, kKeyLists)
                  : prefill_sm90_registers(kConsumers, kBlocksPerSm,
                                           kGathersKeys      ? kGatherRegisters
                                           : kNarrowOperands ? kProducer8BitRegisters
                                                             : kProducerRegisters);

static_assert(kBlockM % kWarpgroupRows == 0 && kWarpgroups >= 1 && kWarpgroups <= 4,
              "block_m is 64 rows for each of 1 to 4 warpgroups");
static_assert(kBlockN % (32 / kOperandBytes) == 0 && kBlockN >= 16 && kBlockN <= 256,
              "block_n is a multiple of 16, with 8-bit operands of 32, up to 256");
static_assert(kHeadDimQk % 8 == 0 && kHeadDimQk <= 576, "head_dim_qk is a multiple of 8");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV <= 512, "head_dim_v is a multiple of 8");
static_assert(kLayout.bytes <= 232448, "shared memory of one block exceeds 227 KB");
static_assert(kKvRing == 0 || kKvRing >= 3, "one ring for K and V needs 3 slots");
static_assert(!kTransposeInside || (kKvRing == 0 && kHeadDimV % 32 == 0),
              "transpose_inside takes slots for V apart and a head_dim_v of whole 32s");
static_assert(kKvSplits == 1 || kScheduler == 0, "splits of the keys take one tile per block");

// Named barriers of the consumers; 0 is __syncthreads.
constexpr int kBarrierTurn = 1;       // + warpgroup: it waits for its turn to issue wgmma
constexpr int kBarrierWarpgroup = 5;  // + warpgroup: its 128 threads synchronise
constexpr int kBarrierConsumers = 9;  // all consumers synchronise

}  // namespace attune
