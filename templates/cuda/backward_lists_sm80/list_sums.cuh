// SPDX-License-Identifier: Apache-2.0
// Sums of dK and dV in the workspace of backward_lists_sm80, in fp32: the products of a step for
// them, and the kernels that clear them and round them to dK and dV.
#pragma once

#include "cuda/backward_lists_sm80/list_parts.cuh"  // where kInParts, else list_adds.cuh
#include "cuda/backward_lists_sm80/list_products.cuh"
#include "cuda/ptx/eight_elements.cuh"
#include "cuda/ptx/store_eight.cuh"

namespace attune {

// Adds dK and dV of a step. Each warp has kM tiles of 16 keys and a share of the columns.
class ListKeySums {
  static constexpr int kAtOnce = 4;  // tiles of 8 columns, at most
  static constexpr int kM = kKeys < 32 ? 1 : 2;
  static constexpr int kKeyWarps = kKeys / 16 / kM;
  static constexpr int kColumnWarps = kWarps / kKeyWarps;
  static_assert(kColumnWarps >= 1, "a warp has at most 32 keys");
  template <int kTiles>
  using Accumulators = float[kM][kTiles][4];

 public:
  __device__ __forceinline__ ListKeySums(const AttentionArgs& args, const ListBlock& block,
                                         const ListTiles& tiles)
      : scale_(args.softmax_scale), tiles_(tiles), target_(args, block, tiles) {}

  __device__ __forceinline__ void add(int step) const {
    constexpr int kQkTiles = kHeadDimQk / 8, kVTiles = kHeadDimV / 8;
    if constexpr (kValuesInKeys) {
      add_columns<true, true, 0, kVTiles, 0>(step);
      add_columns<true, false, kVTiles, kQkTiles, 0>(step);
    } else {
      add_columns<true, false, 0, kQkTiles, 0>(step);
      add_columns<false, true, 0, kVTiles, kQkTiles>(step);
    }
  }

 private:
  // Adds scale dS^T Q (kOfK) and P^T dout (kOfV) of the tiles of 8 columns [kFirst, kEnd), to sums
  // that are kOffset tiles further on.
  template <bool kOfK, bool kOfV, int kFirst, int kEnd, int kOffset>
  __device__ __forceinline__ void add_columns(int step) const {
    constexpr int kShare = (kEnd - kFirst + kColumnWarps - 1) / kColumnWarps;
    constexpr int kTiles = kShare < kAtOnce ? kShare : kAtOnce;
    constexpr bool kEven = (kEnd - kFirst) % (kColumnWarps * kTiles) == 0;
    const int begin = kFirst + warp_of_block() / kKeyWarps * kShare;
    const int end = min(kEnd, begin + kShare);
#pragma unroll 1
    for (int first = begin; first < end; first += kTiles) {
      Accumulators<kTiles> sums = {};
      if constexpr (kOfK) {
        multiply_columns<QkTile>(tiles_.ds(), tiles_.q(), first, end - 1, sums);
#pragma unroll
        for (int i = 0; i < kM * kTiles * 4; ++i)
          sums[i / 4 / kTiles][i / 4 % kTiles][i % 4] *= scale_;
      }
      if constexpr (kOfV) multiply_columns<VTile>(tiles_.p(), tiles_.dout(), first, end - 1, sums);
#pragma unroll
      for (int m = 0; m < kM; ++m)
        target_.add(step, first_key() + 16 * m + lane_of_warp() / 4, 8 * (first + kOffset),
                    kEven ? kTiles : end - first, sums[m]);
    }
  }

  // Returns this warp's first key of a step.
  __device__ __forceinline__ static int first_key() {
    return warp_of_block() % kKeyWarps * kM * 16;
  }

  // Adds A^T B, where A is P or dS, and B columns of the heads' rows.
  template <class Tile, int kTiles>
  __device__ __forceinline__ static void multiply_columns(unsigned a_tile, unsigned b_tile,
                                                          int first, int last,
                                                          Accumulators<kTiles>& sums) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int head = 0; head < kHeads; head += 16) {
      unsigned b[2 * kTiles];
      load_columns<Tile, kTiles>(b_tile, head, first, last, b);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        unsigned a[4];
        ldmatrix_x4_trans(a, a_tile + ScoreTile::offset(head + lane / 16 * 8 + lane % 8,
                                                        first_key() / 8 + 2 * m + lane / 8 % 2));
#pragma unroll
        for (int n = 0; n < kTiles; ++n) mma<kDtypeQ>(sums[m][n], a, b[2 * n], b[2 * n + 1]);
      }
    }
  }

  const float scale_;
  const ListTiles& tiles_;
  const KeyTarget target_;
};

constexpr int kThreadsOfSums = 256;

// Sets all sums to 0, each thread four.
extern "C" __global__ void __launch_bounds__(kThreadsOfSums)
    attune_clear(const __grid_constant__ AttentionArgs args) {
  const long long at =
      4 * (static_cast<long long>(blockIdx.x) * kThreadsOfSums + static_cast<int>(threadIdx.x));
  if (at >= num_key_sums(args)) return;
  *reinterpret_cast<Vector16*>(key_sums(args) + at) = Vector16{};
}

// Rounds all sums to dK and dV, each thread eight.
extern "C" __global__ void __launch_bounds__(kThreadsOfSums)
    attune_keys(const __grid_constant__ AttentionArgs args,
                const __grid_constant__ GradientArgs gradients) {
  const long long at =
      8 * (static_cast<long long>(blockIdx.x) * kThreadsOfSums + static_cast<int>(threadIdx.x));
  if (at >= num_key_sums(args)) return;
  const long long row = at / kSumColumns, key = row / args.num_heads_kv;
  const int column = static_cast<int>(at % kSumColumns);
  const int head = static_cast<int>(row % args.num_heads_kv);
  float values[8];
  load_eight<Dtype::kFp32>(key_sums(args), at, values);
  const bool of_k = kValuesInKeys || column < kHeadDimQk;
  const OperandView& to = of_k ? gradients.dk : gradients.dv;
  const long long place = key / args.seqlen_kv * to.batch_stride +
                          key % args.seqlen_kv * to.row_stride + head * to.head_stride;
  store_eight<kDtypeKv>(to.data, place + (of_k ? column : column - kHeadDimQk), values);
}

}  // namespace attune
