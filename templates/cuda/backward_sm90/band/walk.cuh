// SPDX-License-Identifier: Apache-2.0
// The backward pass along a narrow band (a small sliding window), by one warpgroup. It takes 64
// keys at a time, with the three tiles of rows that see some of these keys. So each operand is read
// once, scores are made once, and each gradient is summed in registers in a fixed order. The other
// warpgroup of the block takes other runs: one makes exponentials while the other multiplies.
#pragma once

#include "cuda/backward_sm90/band/runs.cuh"
#include "cuda/backward_sm90/layout.cuh"
#include "cuda/backward_sm90/step_statistics.cuh"
#include "cuda/backward_sm90/store_gradient.cuh"
#include "cuda/ptx/special_functions.cuh"

#include "generated/wgmma.cuh"

namespace attune {

static_assert(kKeyBlockM == kBandTile, "a step has a tile of rows");

struct BandMaps {
  const TensorMap* q;
  const TensorMap* k;
  const TensorMap* v;
  const TensorMap* dq;
  const TensorMap* dk;
  const TensorMap* dv;
  const TensorMap* dout;
};

class BandWalker {
  using Scores = float[kBandTile / 2];
  using Rounded = unsigned[kBandTile / 4];
  using Dq = float[kHeadDimQk / 2];
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];

 public:
  __device__ __forceinline__ BandWalker(const AttentionArgs& args, unsigned shared, int walker,
                                        const BandMaps& maps)
      : args_(args), own_(shared, walker), walker_(walker), maps_(maps) {}

  __device__ __forceinline__ void run(const BandRun& run) {
    Dq even, odd;  // dQ of two tiles of rows
    clear(even);
    clear(odd);
#pragma unroll 1
    for (int place = run.first_place(); place < run.end; place += 2) {
      take_place(run, place, even, odd);
      if (place + 1 < run.end) take_place(run, place + 1, odd, even);
    }
    give_back_keys(false);
    for (int tile = run.end - 2; tile < run.end; ++tile)
      if (run.has_row(tile)) rows().give_back(row_number(run, tile));
    first_row_ += max(run.row_end - run.row_begin, 0);
  }

 private:
  __device__ __forceinline__ BandRing<kBandRowSlots> rows() const { return own_.rows(); }
  __device__ __forceinline__ BandRing<kBandKeySlots> keys() const { return own_.keys(); }
  __device__ __forceinline__ unsigned row_number(const BandRun& run, int tile) const {
    return first_row_ + static_cast<unsigned>(tile - run.row_begin);
  }

  __device__ __forceinline__ void await_rows(unsigned number) const {
    rows().await(number, "rows full");
    mbarrier_wait(own_.sums_full(number), number / kBandRowSlots & 1, "sums full");
  }

  // Releases the keys of the previous place, as soon as their gradients have left shared memory.
  // `has`: this place has keys as well.
  __device__ __forceinline__ void give_back_keys(bool has) {
    tma_store_wait_read();
    if (holds_keys_) keys().give_back(key_number_ - 1);
    holds_keys_ = has;
  }

  // Takes the steps of a place. `ending` is first dQ of row tile place - 2. After that is stored,
  // `ending` accumulates dQ of row tile `place`. `other` is dQ of row tile place - 1.
  __device__ __forceinline__ void take_place(const BandRun& run, int place, Dq& ending, Dq& other) {
    const bool has_keys = run.has_keys(place);
    Dk dk;
    Dv dv;
    clear(dk);
    clear(dv);
    if (has_keys) keys().await(key_number_, "keys full");
    if (has_keys && run.has_row(place - 2)) step(run, place, 2, ending, dk, dv);
    give_back_keys(has_keys);
    if (run.has_row(place - 2))
      store_gradient<kDtypeQ>(*maps_.dq, rows().tile(row_number(run, place - 2)), walker_,
                              {0, (place - 2) * kBandTile, run.head, run.batch},
                              args_.softmax_scale, ending);
    clear(ending);
    if (has_keys && run.has_row(place - 1)) step(run, place, 1, other, dk, dv);
    if (run.has_row(place - 2)) {
      tma_store_wait_read();
      rows().give_back(row_number(run, place - 2));
    }
    if (run.has_row(place)) await_rows(row_number(run, place));
    if (has_keys && run.has_row(place)) step(run, place, 0, ending, dk, dv);
    if (!has_keys) return;
    if (place >= run.begin) {
      const TensorCoord at{0, run.key(place), run.head, run.batch};
      const unsigned tile = keys().tile(key_number_);
      store_gradient<kDtypeKv>(*maps_.dv, tile + kBandLayout.tile_bytes, walker_, at, 1.f, dv);
      store_gradient<kDtypeKv>(*maps_.dk, tile, walker_, at, args_.softmax_scale, dk);
    }
    ++key_number_;
  }

  // Takes one step: the keys of a place and the rows of tile place - `back`.
  __device__ __forceinline__ void step(const BandRun& run, int place, int back, Dq& dq, Dk& dk,
                                       Dv& dv) const {
    const unsigned row = row_number(run, place - back);
    const unsigned q = rows().tile(row), dout = q + kBandLayout.tile_bytes;
    const unsigned k = keys().tile(key_number_), v = k + kBandLayout.tile_bytes;
    Scores s, dp;
    wgmma_fence();
    wgmma_k_q(s, by_rows(k), by_rows(q));
    wgmma_commit();
    wgmma_v_dout(dp, by_rows(v), by_rows(dout));
    wgmma_commit();
    StepStatistics<kEarly> l2(own_.sums(row));
    wgmma_wait<1>();
    wgmma_pin(s);
#pragma unroll
    for (int i = 0; i < kBandTile / 2; i += 4) {
      l2.load_late(i / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        s[i + j] = exp2_approx(s[i + j] * args_.softmax_scale_log2 - l2.of(i / 4, j % 2));
    }
    hide_unseen(run, place, back, s);
    StepStatistics<kEarly> delta(own_.sums(row) + 4 * kBandTile);
    wgmma_wait<0>();
    wgmma_pin(dp);
    Rounded p, ds;
#pragma unroll
    for (int i = 0; i < kBandTile / 2; i += 2) {
      if (i % 4 == 0) delta.load_late(i / 4);
      ds[i / 2] = pack<kDtypeQ>(s[i] * (dp[i] - delta.of(i / 4, 0)),
                                s[i + 1] * (dp[i + 1] - delta.of(i / 4, 1)));
      p[i / 2] = pack<kDtypeQ>(s[i], s[i + 1]);
    }
    await_warps();  // no warp still multiplies the old dS
    const unsigned at = own_.tiles + kBandLayout.ds;
    write_ds(at + ds_offset<0>(reread_thread_index() % kWarpgroupThreads), ds);
    fence_proxy_async();
    wgmma_fence();
    wgmma_p_dout(dv, p, by_columns<kBandTile>(dout), 1);
    wgmma_ds_q(dk, ds, by_columns<kBandTile>(q), 1);
    wgmma_commit();
    await_warps();
    wgmma_ds_keys(dq, by_rows(at), by_columns<kBandTile>(k), 1);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(dv);
    wgmma_pin(dk);
    wgmma_pin(dq);
  }

  __device__ __forceinline__ void await_warps() const {
    named_barrier_sync(kBarrierWarpgroup + walker_, kWarpgroupThreads);
  }

  // Zeroes elements of P outside the band. The distance of a key from a row's diagonal is the
  // distance of their tiles, `apart`, plus the distance within the tiles. Rows past the end need no
  // mask: their L2 is infinity, so their P is zero.
  __device__ __forceinline__ void hide_unseen(const BandRun& run, int place, int back,
                                              Scores& p) const {
    constexpr int kLeft = static_cast<int>(kBandWidth.left);
    constexpr int kRight = static_cast<int>(kBandWidth.right);
    const int diagonal = static_cast<int>(first_diagonal(CompiledRule(), args_));
    const int key = run.key(place), apart = key - diagonal - (place - back) * kBandTile;
    const bool inside = key + kBandTile <= run.seqlen_kv;
    if (inside && apart - (kBandTile - 1) >= -kLeft && apart + kBandTile - 1 <= kRight) return;
    const int own = first_accumulator_row();
    const int column = reread_thread_index() % 4 * 2;
    unsigned from[2];  // distance of each key from the first key that row `column` sees
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int mine = key + own + 8 * i;
      from[i] = mine < run.seqlen_kv ? static_cast<unsigned>(apart + own + 8 * i - column + kLeft)
                                     : 0x40000000u;
    }
#pragma unroll
    for (int i = 0; i < kBandTile / 2; ++i)
      if (from[i / 2 % 2] - static_cast<unsigned>(i / 4 * 8 + i % 2) > kLeft + kRight) p[i] = 0.f;
  }

  static constexpr int kEarly = 4;  // pairs of statistics that are loaded before the waits

  const AttentionArgs& args_;
  BandShared own_;
  int walker_;
  const BandMaps& maps_;
  unsigned first_row_ = 0;   // number of the run's first tile of rows, over all runs
  unsigned key_number_ = 0;  // number of the place's tile of keys, over all runs
  bool holds_keys_ = false;
};

}  // namespace attune
