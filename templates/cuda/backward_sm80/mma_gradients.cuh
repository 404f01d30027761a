// SPDX-License-Identifier: Apache-2.0
// Computes one tile of the mma.sync gradient kernels. Each warp owns 16 or 32 of the rows that stay
// in shared memory, from the first score to the stored gradient. c is softmax_scale log2(e), L2 is
// lse log2(e). Either rows of Q and dout stay, and K and V stream:
//   S = Q K^T,    dP = dout V^T,    P = exp2(c S - L2),    dS = P (dP - delta),  dQ += dS K
// or rows of K and V stay, and Q and dout of all heads of the group stream, so that no other block
// adds to the same gradients:
//   S^T = K Q^T,  dP^T = V dout^T,  P^T = exp2(c S^T - L2),  dS^T = P^T (dP^T - delta),
//   dV += P^T dout,  dK += dS^T Q
// P and dS stay in registers: the rounded accumulators are the A operands of the next products.
#pragma once

#include "cuda/backward_sm80/gradient_sums.cuh"  // where kAccumulate
#include "cuda/mma/epilogue.cuh"
#include "cuda/mma/mma_gradient_products.cuh"
#include "cuda/mma/mma_gradient_stages.cuh"
#include "cuda/mma/mma_gradient_stream.cuh"
#include "cuda/mma/tile_state.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_functions.cuh"

namespace attune {

// Makes dQ or dK (kMakesFirst), and dV (kMakesSecond). The first operands make S; the second make
// dP, which dV does not need.
template <bool kKeysStay, bool kMakesFirst, bool kMakesSecond>
class GradientTile {
  using Side = GradientSide<kKeysStay, kMakesFirst>;
  using Stream = GradientStream<kKeysStay, kMakesFirst>;
  static constexpr BackwardSm80Layout kLayout = Side::kLayout;
  static constexpr int kM = kLayout.row_tiles;
  static constexpr int kN = Side::kStepRows / 8;
  using Scores = float[kM][kN][4];  // (rows of the warp, kStepRows)

 public:
  using First = float[kM][kHeadDimQk / 8][4];  // dQ or dK, without softmax_scale
  using Second = float[kM][kHeadDimV / 8][4];  // dV

  __device__ __forceinline__ GradientTile(const GradientParts& parts, unsigned shared)
      : parts_(parts), shared_(shared), tile_(Side::tile(parts.base)) {}

  __device__ __forceinline__ void run() {
    const AttentionArgs& args = parts_.base;
    if (Side::stay_length(args) == 0) return;
    const BlockRange all = Side::blocks(args, tile_.row_block * Side::kStayRows, Side::kStayRows);
    Stream stream(parts_, tile_, all, shared_);
    First first;
    Second second;
    if constexpr (kMakesFirst) clear(first);
    if constexpr (kMakesSecond) clear(second);
    int steps = stream.steps();
    if (steps > 0) {
      const TileState state(shared_ + kLayout.state);
      state.park(tile_, Side::blocks(args, warp_row(), Side::kWarpRows));
      stream.start(tile_);
      load_row_sums();
      StepCursor at = Stream::first_step(tile_, all);
#pragma unroll 1
      for (; steps > 0; --steps) {
        const unsigned slot = stream.acquire();  // the state is readable
        const BlockRange range = state.range();
        if (range.contains(at.block)) step(at, slot, range.needs_mask(at.block), first, second);
        at.advance(all);
      }
    }
    if constexpr (kMakesFirst) scale_kept(parts_.dropout, first);
    if constexpr (kMakesSecond) scale_kept(parts_.dropout, second);
    if constexpr (kMakesFirst)
      store(kKeysStay ? parts_.gradients.dk : parts_.gradients.dq, args.softmax_scale, first);
    if constexpr (kMakesSecond) store(parts_.gradients.dv, 1.f, second);
  }

 private:
  // Return the warp's first row, and this thread's first row. A thread also has the rows 16 m and
  // 16 m + 8 further down.
  __device__ __forceinline__ int warp_row() const {
    return tile_.row_block * Side::kStayRows + reread_thread_index() / 32 * Side::kWarpRows;
  }
  __device__ __forceinline__ int thread_row() const {
    return warp_row() + reread_thread_index() % 32 / 4;
  }
  // Returns this thread's first column. A thread also has the columns 8 n and 8 n + 1 further on.
  __device__ __forceinline__ static int thread_column() { return reread_thread_index() % 4 * 2; }

  // Loads L2 and delta of the rows, if rows stay.
  __device__ __forceinline__ void load_row_sums() {
    if constexpr (kKeysStay) return;
    const float* const sums = row_sums(parts_.base, tile_.batch, tile_.head) + thread_row();
    const int rows = padded_rows(parts_.base);
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) {
      l2_[i] = sums[8 * i];
      delta_[i] = sums[rows + 8 * i];
    }
  }

  __device__ __forceinline__ void step(const StepCursor& at, unsigned slot, bool masked,
                                       First& first, Second& second) {
    SeenElements<kM, kN> seen;
    if (!seen.look(parts_, place(at))) return;
    const DroppedElements<kKeysStay, kM, kN> dropped(parts_, place(at));
    Scores s, dp;
    multiply_rows<kHeadDimQk>(s, shared_, slot);
    if constexpr (kMakesFirst)
      multiply_rows<kHeadDimV>(dp, shared_ + kLayout.second, slot + kLayout.slot_second);
    if constexpr (kMakesFirst) dropped.zero(dp);
    if constexpr (kMakesFirst) subtract_delta(slot + kLayout.slot_delta, dp);
    bend_scores(parts_, place(at), s, dp);
    exponentiate(slot + kLayout.slot_l2, s, dp);
    if (masked) hide(at.block, s, dp);
    seen.template hide<kMakesFirst>(s, dp);
    if constexpr (kMakesSecond) dropped.zero(s);
    if constexpr (kMakesSecond) multiply_columns<kHeadDimV>(second, s, slot + kLayout.slot_second);
    if constexpr (kMakesFirst) multiply_columns<kHeadDimQk>(first, dp, slot);
  }

  // Loads the values (L2 or delta) of the two rows of Q to which this thread's columns of block n
  // belong.
  __device__ __forceinline__ static void load_columns(unsigned sums, int n, float (&of)[2]) {
    load_shared_pair(sums + n * 32 + thread_column() * 4, &of[0], &of[1]);
  }

  __device__ __forceinline__ void subtract_delta(unsigned sums, Scores& dp) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      float of[2];
      if constexpr (kKeysStay) load_columns(sums, n, of);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) dp[m][n][i] -= kKeysStay ? of[i % 2] : delta_[2 * m + i / 2];
      }
    }
  }

  // Turns s into P and dp into dS.
  __device__ __forceinline__ void exponentiate(unsigned sums, Scores& s, Scores& dp) const {
    const float scale = kScored ? 1.0f : parts_.base.softmax_scale_log2;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      float of[2];
      if constexpr (kKeysStay) load_columns(sums, n, of);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& p = s[m][n][i];
          p = exp2_approx(p * scale - (kKeysStay ? of[i % 2] : l2_[2 * m + i / 2]));
          if constexpr (kMakesFirst) dp[m][n][i] *= p;
        }
      }
    }
  }

  // Sets hidden elements of P and dS to zero. If keys stream, keys past the end are hidden too:
  // their rows of K are zero, so their P may be inf.
  __device__ __forceinline__ void hide(int block, Scores& p, Scores& ds) const {
    const int column = block * Side::kStepRows + thread_column();
    const int row = thread_row();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int begin, end;
        visible(row + 16 * m + 8 * half, &begin, &end);
        begin -= column, end -= column;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if (8 * n + j >= begin && 8 * n + j <= end) continue;
            p[m][n][2 * half + j] = 0.f;
            if constexpr (kMakesFirst) ds[m][n][2 * half + j] = 0.f;
          }
        }
      }
    }
  }
  __device__ __forceinline__ void visible(int stay, int* first, int* last) const {
    if constexpr (kKeysStay) {
      const RowInterval rows = visible_rows(CompiledRule(), parts_.base, stay);
      *first = rows.first, *last = rows.last;
    } else {
      const KeyInterval<int> keys = visible_keys(parts_.base, stay);
      *first = keys.first, *last = keys.last;
    }
  }

  __device__ __forceinline__ ElementPlace<kKeysStay> place(const StepCursor& at) const {
    return {tile_.batch, kKeysStay ? at.head : tile_.head, thread_row(),
            at.block * Side::kStepRows + thread_column()};
  }

  template <int kTiles>
  __device__ __forceinline__ void store(const OperandView& to, float factor,
                                        const float (&gradient)[kM][kTiles][4]) const {
    if constexpr (kAccumulate)
      return add_gradient(parts_.base, to, place({0, tile_.head}), factor, gradient);
    constexpr Dtype kDtype = kKeysStay ? kDtypeKv : kDtypeQ;
    unsigned short* const base = output_rows(to, tile_);
    const int length = Side::stay_length(parts_.base);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = thread_row() + 16 * m + 8 * half;
        store_row<kDtype>(gradient[m], 2 * half, factor,
                          row < length ? base + row * to.row_stride : nullptr,
                          static_cast<int>(threadIdx.x) % 4);
      }
    }
  }

  const GradientParts& parts_;
  unsigned shared_;
  Tile tile_;
  float l2_[2 * kM], delta_[2 * kM];  // values of this thread's rows, if rows stay
};

}  // namespace attune
