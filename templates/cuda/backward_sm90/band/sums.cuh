// SPDX-License-Identifier: Apache-2.0
// Computes L2 = lse * log2(e) and delta = sum(o * dout) - dlse of the rows that a walker takes, in
// a separate warp. It reads dout from the walker's shared memory, so no earlier kernel has to read
// o and dout for these sums.
#pragma once

#include "cuda/backward_sm90/band/runs.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/row_sums.cuh"
#include "cuda/ptx/eight_elements.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// Eight lanes share a row, and a warp takes four rows at a time. o is loaded in parts of a tile.
class BandSums {
  static constexpr int kLanes = kPanelColumns / 8;
  static constexpr int kRows = 32 / kLanes;
  static constexpr int kPasses = kBandSumRows / kRows;  // per part
  static constexpr int kParts = kBandTile / kBandSumRows;
  static_assert(2 * kPasses == kLanes, "a lane keeps a row of each two parts");
  static_assert(kParts >= kBandSumSlots && kBandTile == 64,
                "what comes next is of the next tile at most");

 public:
  __device__ __forceinline__ BandSums(const AttentionArgs& args, const GradientArgs& gradients,
                                      const TensorMap& map_o, unsigned shared, int walker)
      : args_(args), gradients_(gradients), map_o_(map_o), own_(shared, walker) {}

  // Makes the sums of all tiles of a run.
  __device__ __forceinline__ void make_all(const BandRun& run) {
    if (run.row_begin >= run.row_end) return;
#pragma unroll
    for (int part = 0; part < kBandSumSlots; ++part) {
      load(run, run.row_begin, part);
      advance();
    }
    state_ ^= 1;  // slot 0 is next again with parity 0: its first load is not read yet
#pragma unroll 1
    for (int tile = run.row_begin; tile < run.row_end; ++tile) make(run, tile);
  }

 private:
  // Makes the sums of one tile. After a part of o is read, its slot is refilled with a later part,
  // which may belong to the next tile.
  __device__ __forceinline__ void make(const BandRun& run, int tile) {
    RowStatistics statistics;
    own_.rows().await_free(number_, "sums read");  // the thread that loads dout awaits it, too
    own_.rows().await(number_, "dout full");
    float own = 0.f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (part % 2 == 0) statistics = of_row(run, tile, part / 2);
      mbarrier_wait(own_.o_full(slot()), state_ & 1, "o full");
      own = add_up(part, own);
      __syncwarp();
      const int next = part + kBandSumSlots;
      if (next < kParts || tile + 1 < run.row_end) load(run, tile + next / kParts, next % kParts);
      advance();
      if (part % 2 == 1) keep(statistics, 32 * (part / 2) + own_row(), own_.sums(number_), own);
    }
    __syncwarp();
    mbarrier_arrive_if(lane() == 0, own_.sums_full(number_));
    ++number_;
  }

  __device__ __forceinline__ void advance() {
    state_ += 2;
    if (state_ >= 2 * kBandSumSlots) state_ = (state_ - 2 * kBandSumSlots) ^ 1;
  }
  __device__ __forceinline__ int slot() const { return state_ >> 1; }

  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // Loads a part of a tile of o into slot().
  __device__ __forceinline__ void load(const BandRun& run, int tile, int part) const {
    if (lane() != 0) return;
    mbarrier_arrive_expect_tx(own_.o_full(slot()), kBandSumRows * kPanelRowBytes);
    tma_load(own_.o(slot()), map_o_, own_.o_full(slot()),
             {0, tile * kBandTile + part * kBandSumRows, run.head, run.batch});
  }

  // Sums up the rows of a part. Returns the sum that this lane keeps, or `own` if this lane keeps
  // no row of the part.
  __device__ __forceinline__ float add_up(int part, float own) const {
    const unsigned dout = own_.rows().tile(number_) + kBandLayout.tile_bytes;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = kRows * i + lane() / kLanes;
      const float sum =
          dot(eight_of(own_.o(slot()), row), eight_of(dout, part * kBandSumRows + row));
      if (lane() % kLanes == part % 2 * kPasses + i) own = sum;
    }
    return own;
  }

  // Returns this lane's eight columns of a row of a panel.
  __device__ __forceinline__ static EightPacked<kDtypeO> eight_of(unsigned panel, int row) {
    return {{load_shared_16(panel + row * kPanelRowBytes + ((lane() % kLanes ^ row % 8) << 4))}};
  }

  __device__ __forceinline__ static float dot(const EightPacked<kDtypeO>& a,
                                              const EightPacked<kDtypeO>& b) {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += unpacked(a, i) * unpacked(b, i);
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return sum;
  }

  // Returns the row, out of each 32, whose statistics this lane keeps.
  __device__ __forceinline__ static int own_row() {
    return kRows * (lane() % kLanes) + lane() / kLanes;
  }

  struct RowStatistics {
    float lse, dlse;
  };
  __device__ __forceinline__ RowStatistics of_row(const BandRun& run, int tile, int half) const {
    const int row = tile * kBandTile + 32 * half + own_row();
    // Rereads both, so that addresses computed from them are not kept in registers.
    const int batch = reread(run.batch), head = reread(run.head);
    RowStatistics of{-__int_as_float(0x7f800000), 0.f};
    if (row >= args_.seqlen_q) return of;
    of.lse = args_.lse[batch * args_.lse_batch_stride + head * args_.lse_head_stride + row];
    if (gradients_.dlse != nullptr)
      of.dlse = gradients_.dlse[batch * gradients_.dlse_batch_stride +
                                head * gradients_.dlse_head_stride + row];
    return of;
  }

  __device__ __forceinline__ static void keep(const RowStatistics& of, int row, unsigned sums,
                                              float sum) {
    const float infinity = __int_as_float(0x7f800000);
    const bool empty = of.lse == -infinity;
    store_shared_word(sums + 4 * row, __float_as_int(empty ? infinity : of.lse * kLog2E));
    store_shared_word(sums + 4 * (kBandTile + row), __float_as_int(empty ? 0.f : sum - of.dlse));
  }

  const AttentionArgs& args_;
  const GradientArgs& gradients_;
  const TensorMap& map_o_;
  BandShared own_;
  unsigned number_ = 0;  // number of the tile of rows
  int state_ = 0;        // 2 * slot of a part of o + parity of its barrier
};

__device__ __forceinline__ void make_band_sums(const AttentionArgs& args,
                                               const GradientArgs& gradients,
                                               const TensorMap& map_o, unsigned shared,
                                               int walker) {
  BandSums sums(args, gradients, map_o, shared, walker);
#pragma unroll 1
  for (BandRuns runs(args, walker); !runs.done();) sums.make_all(runs.take());
}

}  // namespace attune
