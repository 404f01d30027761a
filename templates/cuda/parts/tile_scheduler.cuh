// SPDX-License-Identifier: Apache-2.0
// The order of work tiles; a tile is a block of query rows of one head of one batch entry. Tile
// numbers run from 0; the hardware or a persistent loop starts low numbers first. Every CUDA
// prefill kernel uses this file.
#pragma once

#include "cuda/parts/v_slice.cuh"
#include "shared/attention_args.h"
#include "shared/attention_enums.h"

namespace attune {

// Values of the knob tile_order.
enum TileOrder : int {
  kRowsFirst = 0,  // all row blocks of one head, then the next head: neighbours share K and V
  kLongestFirst =
      1,  // last row blocks of all heads first: with a causal mask the longest tiles start first
  kSectionsLongestFirst =
      2,  // longest first within groups of heads whose K and V fit in L2 together
};

struct Tile {
  int row_block;
  int head;  // head of Q
  int batch;
};

// The default limit of K and V per section, in MB; about half of the L2 of large GPUs.
constexpr int kSectionMegabytes = 32;

// Maps a tile's number to its place. kHeadsPerKv heads of q read one head of K and V.
template <int kOrder, int kRows, int kSectionMb = kSectionMegabytes, int kHeadsPerKv = kGqaRatio>
class TileScheduler {
 public:
  __device__ explicit TileScheduler(const AttentionArgs& args)
      : row_blocks_((args.seqlen_q + kRows - 1) / kRows),
        heads_(args.num_heads_q),
        all_heads_(args.batch * args.num_heads_q) {
    if constexpr (kOrder == kSectionsLongestFirst) {
      constexpr long long kElementBytes =
          kDtypeKv == Dtype::kE4m3 || kDtypeKv == Dtype::kE5m2 ? 1 : 2;
      const long long head_bytes =
          kElementBytes * (kHeadDimQk + kHeadDimV) * max(args.seqlen_kv, 1);
      const long long fitting = (static_cast<long long>(kSectionMb) << 20) / head_bytes;
      section_heads_ = static_cast<int>(
          min(max(fitting, 1ll) * kHeadsPerKv, static_cast<long long>(all_heads_)));
    }
  }

  __device__ Tile operator()(int tile) const {
    tile /= kVSlices;
    int section = 0;
    int section_heads = all_heads_;
    if constexpr (kOrder == kRowsFirst) {
      const int head = tile / row_blocks_;
      return {tile - head * row_blocks_, head % heads_, head / heads_};
    }
    if constexpr (kOrder == kSectionsLongestFirst) {
      section = tile / (row_blocks_ * section_heads_);
      tile -= section * row_blocks_ * section_heads_;
      section_heads = min(section_heads_, all_heads_ - section * section_heads_);
    }
    const int from_last = tile / section_heads;
    const int head = section * section_heads_ + tile - from_last * section_heads;
    return {row_blocks_ - 1 - from_last, head % heads_, head / heads_};
  }

 private:
  int row_blocks_;
  int heads_;
  int all_heads_;
  int section_heads_ = 0;
};

}  // namespace attune
