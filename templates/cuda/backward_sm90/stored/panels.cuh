// SPDX-License-Identifier: Apache-2.0
// Writes and finds dS, and P if stored, in the workspace after L2 and delta
// (shared/layouts/backward_stored_layout.h). attune_kernel writes them; the kernels of dK and dV
// read them.
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/parts/row_sums.cuh"
#include "cuda/parts/section_order.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "shared/layouts/backward_stored_layout.h"
#include "shared/round_args.h"

namespace attune {

enum class Stored : int { kDs, kP };

// P, where it is stored, lies behind dS of the same place.
constexpr int kStoredStride = (kGradientV ? 2 : 1) * kStoredBytes;

// Returns the blocks of 64 keys that the 64 rows from `row` on see.
__device__ __forceinline__ BlockRange seen_blocks(const AttentionArgs& args, int row) {
  return visible_blocks<kWarpgroupRows>(args, row, min(row + kWarpgroupRows, args.seqlen_q));
}

// Returns the address of key block 0 for a block of 64 rows, in a head of Q of this round. Key
// block i is kStoredStride * i bytes further on.
__device__ __forceinline__ unsigned char* stored_places(const AttentionArgs& args,
                                                        const RoundArgs& round, int batch, int head,
                                                        int row, const BlockRange& seen) {
  const int heads = args.batch * args.num_heads_q;
  const int of_round = batch * args.num_heads_q + head - round.first_head * kGqaRatio;
  const StoredLine at =
      backward_stored_line(args.seqlen_q, row / kWarpgroupRows, seen.begin, seen.end, round.stride);
  const long long line = of_round * backward_stored_lines(args.seqlen_q) + at.line;
  return static_cast<unsigned char*>(args.workspace) +
         backward_sums_bytes(heads, padded_rows(args)) +
         (line * round.stride + at.first) * kStoredStride;
}

__device__ __forceinline__ void round_scores(const float (&scores)[kBlockN / 2],
                                             unsigned (&rounded)[kBlockN / 4]) {
#pragma unroll
  for (int i = 0; i < kBlockN / 4; ++i)
    rounded[i] = pack<kDtypeQ>(scores[2 * i], scores[2 * i + 1]);
}

// Writes a thread's rounded accumulators of each step of kBlockN keys into the panels of its
// warpgroup's rows.
class PanelWriter {
 public:
  // `head` is a head of Q; `first_row` is the warpgroup's first row.
  template <class Heads>
  __device__ __forceinline__ void begin(const AttentionArgs& args, const Heads& heads, int batch,
                                        int head, int first_row) {
    const int thread = reread_thread_index() % kWarpgroupThreads, lane = thread % 32;
    const int row = thread / 32 * 16 + lane / 4, chunk = lane % 4 / 2 ^ lane / 16;
    to_ = stored_places(args, heads.round, batch, head, first_row, seen_blocks(args, first_row)) +
          row * kStoredRowBytes + chunk * 16 + lane % 2 * 8;
  }

  __device__ __forceinline__ void write_ds(int block, const unsigned (&ds)[kBlockN / 4]) const {
    write<Stored::kDs>(block, ds);
  }

  // Rounds P, without its dropped elements, and writes it if dV is made from it.
  template <class Dropout>
  __device__ __forceinline__ void write_p(int block, const float (&p)[kBlockN / 2],
                                          const Dropout& dropout) const {
    if constexpr (kGradientV) {
      unsigned rounded[kBlockN / 4];
      round_scores(p, rounded);
      dropout.keep(rounded);
      write<Stored::kP>(block, rounded);
    }
  }

  // Clears the parts of the first and last 64 keys that blocks [begin, end) do not cover. No row
  // sees a key there.
  __device__ __forceinline__ void clear_rest(int begin, int end) const {
    if constexpr (kOfStep % kStoredPanels == 0) return;
    if (begin >= end) return;
    clear(begin * kOfStep / kStoredPanels * kStoredPanels, begin * kOfStep);
    clear(end * kOfStep, (end * kOfStep + kStoredPanels - 1) / kStoredPanels * kStoredPanels);
  }

 private:
  static constexpr int kOfStep = kBlockN / kStoredKeys;  // panels per step

  template <Stored kWhich>
  __device__ __forceinline__ void write(int block, const unsigned (&words)[kBlockN / 4]) const {
#pragma unroll
    for (int i = 0; i < kOfStep; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *place<kWhich>(block * kOfStep + i, half) = {words[4 * i + half], words[4 * i + 2 + half]};
  }

  template <Stored kWhich>
  __device__ __forceinline__ uint2* place(unsigned panel, int half) const {
    return reinterpret_cast<uint2*>(
        to_ + static_cast<unsigned long long>(panel / kStoredPanels) * kStoredStride +
        panel % kStoredPanels * kStoredPanelBytes + (kWhich == Stored::kP ? kStoredBytes : 0) +
        half * 8 * kStoredRowBytes);
  }

  __device__ __forceinline__ void clear(int begin, int end) const {
#pragma unroll 1
    for (int panel = begin; panel < end; ++panel)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *place<Stored::kDs>(panel, half) = {0, 0};
        if constexpr (kGradientV) *place<Stored::kP>(panel, half) = {0, 0};
      }
  }

  unsigned char* to_;
};

// The heads of a round, whose scores are stored.
struct HeadsOfRound {
  using Panels = PanelWriter;

  const RoundArgs& round;

  __device__ __forceinline__ explicit HeadsOfRound(const RoundArgs& of) : round(of) {}

  // Returns the place of tile `number` of the round; see AllHeads. `heads_of_k`: heads for each
  // head of K.
  __device__ __forceinline__ TilePlace place(int number, int blocks, int heads_of_k, int heads,
                                             int /*batch*/, int streamed_rows) const {
    const TilePlace place = place_of(number, blocks, round.heads * heads_of_k, 1, streamed_rows);
    const int head = round.first_head * heads_of_k + place.head, entry = head / heads;
    return {place.block, head - entry * heads, entry};
  }
};

}  // namespace attune
