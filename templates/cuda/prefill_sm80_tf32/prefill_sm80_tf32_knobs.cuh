// SPDX-License-Identifier: Apache-2.0
// Default constants of prefill_sm80_tf32, for editors and nvcc. The renderer replaces this file
// with the constants of a config.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

// default_spec.cuh has 16-bit operands.
constexpr Dtype kDtypeQ = Dtype::kFp32, kDtypeKv = Dtype::kFp32, kDtypeO = Dtype::kFp32;
constexpr int kHeadDimQk = 128, kHeadDimV = 128, kGqaRatio = 1;
constexpr Mask kMask = Mask::kCausalBottomRight;
constexpr int kWindowLeft = -1, kWindowRight = -1;  // -1 = open

constexpr int kArch = 80;
constexpr int kTf32Products = 1;  // tf32 products per fp32 product: 1 or 3

constexpr int kBlockM = 128;     // rows of Q per tile
constexpr int kBlockN = 48;      // rows of K and V per step
constexpr int kWarps = 4;        // each owns block_m / warps rows: 16 or 32
constexpr int kKvSlots = 1;      // 1 to 5: slots for K, and as many for V; with kShareKv for both
constexpr int kShareKv = 0;      // 1: K and V use the slots of the ring by turns
constexpr int kQPlace = 0;       // 0 shared memory, 1 registers, 2 registers, through the ring
constexpr int kBlocksPerSm = 1;  // blocks per multiprocessor that the registers must allow
constexpr int kTileOrder = 1;    // 0 rows first, 1 longest first, 2 as 1, within L2-sized sections
constexpr int kHoldOffsets = 1;  // 1: ldmatrix offsets stay in registers, 0: recomputed each step
constexpr int kLoadHint = 128;   // bytes that L2 fetches around a load: 128, or 0: its own choice

}  // namespace attune
