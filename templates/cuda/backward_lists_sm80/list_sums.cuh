// SPDX-License-Identifier: Apache-2.0
// Sums of dK and dV in the workspace of backward_lists_sm80, in fp32: the products of a step that
// all blocks add to them, and the kernels that clear them and round them to dK and dV. Blocks add
// in no fixed order.
#pragma once

#include "cuda/backward_lists_sm80/list_products.cuh"
#include "cuda/ptx/bulk_copies.cuh"
#include "cuda/ptx/eight_elements.cuh"
#include "cuda/ptx/store_eight.cuh"

namespace attune {

constexpr int kSumColumns = backward_lists_columns(kHeadDimQk, kHeadDimV, kValuesInKeys);

// Returns the sums of all keys: [batch, seqlen_kv, num_heads_kv, kSumColumns], dK before dV.
__device__ __forceinline__ float* key_sums(const AttentionArgs& args) {
  const long long rows = 2LL * args.batch * args.num_heads_q * args.seqlen_q;
  return static_cast<float*>(args.workspace) + backward_lists_sums(rows);
}
__device__ __forceinline__ long long num_key_sums(const AttentionArgs& args) {
  return static_cast<long long>(args.batch) * args.seqlen_kv * args.num_heads_kv * kSumColumns;
}

// Adds dK and dV of a step. Each warp has kM tiles of 16 keys and a share of the columns.
class ListKeySums {
  static constexpr int kAtOnce = 4;  // tiles of 8 columns
  static constexpr int kM = kKeys < 32 ? 1 : 2;
  static constexpr int kKeyWarps = kKeys / 16 / kM;
  static constexpr int kColumnWarps = kWarps / kKeyWarps;
  static_assert(kColumnWarps >= 1, "a warp has at most 32 keys");
  using Accumulators = float[kM][kAtOnce][4];

 public:
  __device__ __forceinline__ ListKeySums(const AttentionArgs& args, const ListBlock& block,
                                         const ListTiles& tiles)
      : scale_(args.softmax_scale), tiles_(tiles), key_step_(args.num_heads_kv * kSumColumns) {
    sums_ = key_sums(args) + block.batch * args.seqlen_kv * key_step_ + block.head_kv * kSumColumns;
  }

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
    const int begin = kFirst + warp_of_block() / kKeyWarps * kShare;
    const int end = min(kEnd, begin + kShare);
#pragma unroll 1
    for (int first = begin; first < end; first += kAtOnce) {
      Accumulators sums = {};
      if constexpr (kOfK) {
        multiply_columns<QkTile>(tiles_.ds(), tiles_.q(), first, end - 1, sums);
#pragma unroll
        for (int i = 0; i < kM * kAtOnce * 4; ++i)
          sums[i / 4 / kAtOnce][i / 4 % kAtOnce][i % 4] *= scale_;
      }
      if constexpr (kOfV) multiply_columns<VTile>(tiles_.p(), tiles_.dout(), first, end - 1, sums);
      add_to_sums(step, 8 * (first + kOffset), end - first, sums);
    }
  }

  // Returns this warp's first key of a step.
  __device__ __forceinline__ static int first_key() {
    return warp_of_block() % kKeyWarps * kM * 16;
  }

  // Adds A^T B, where A is P or dS, and B columns of the heads' rows.
  template <class Tile>
  __device__ __forceinline__ static void multiply_columns(unsigned a_tile, unsigned b_tile,
                                                          int first, int last, Accumulators& sums) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int head = 0; head < kHeads; head += 16) {
      unsigned b[2 * kAtOnce];
      load_columns<Tile, kAtOnce>(b_tile, head, first, last, b);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        unsigned a[4];
        ldmatrix_x4_trans(a, a_tile + ScoreTile::offset(head + lane / 16 * 8 + lane % 8,
                                                        first_key() / 8 + 2 * m + lane / 8 % 2));
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) mma<kDtypeQ>(sums[m][n], a, b[2 * n], b[2 * n + 1]);
      }
    }
  }

  // Adds the accumulators of `count` tiles to global memory, from `column` on.
  __device__ __forceinline__ void add_to_sums(int step, int column, int count,
                                              const Accumulators& sums) const {
    const int lane = lane_of_warp();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const int number = first_key() + 16 * m + lane / 4;
      if constexpr (kArch >= 90) {
        add_fours(tiles_.key(step, number + lane % 2 * 8), column, count, sums[m]);
      } else {
        add_pairs(tiles_.key(step, number), column, count, 0, sums[m]);
        add_pairs(tiles_.key(step, number + 8), column, count, 2, sums[m]);
      }
    }
  }

  // Two neighbouring lanes have four columns of two keys. Each adds those of one key.
  __device__ __forceinline__ void add_fours(int key, int column, int count,
                                            const float (&sums)[kAtOnce][4]) const {
    const int lane = lane_of_warp();
    const bool is_odd = lane % 2 != 0;
    float* const to = sums_ + max(key, 0) * key_step_ + column + lane % 4 / 2 * 4;
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const float(&own)[4] = sums[n];
      const float first = __shfl_xor_sync(0xFFFFFFFFu, is_odd ? own[0] : own[2], 1);
      const float second = __shfl_xor_sync(0xFFFFFFFFu, is_odd ? own[1] : own[3], 1);
      if (key < 0 || n >= count) continue;
      if (is_odd)
        add_four(to + 8 * n, first, second, own[2], own[3]);
      else
        add_four(to + 8 * n, own[0], own[1], first, second);
    }
  }
  __device__ __forceinline__ void add_pairs(int key, int column, int count, int half,
                                            const float (&sums)[kAtOnce][4]) const {
    if (key < 0) return;
    float* const to = sums_ + key * key_step_ + column + lane_of_warp() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (n >= count) continue;
      atomicAdd(to + 8 * n, sums[n][half]);
      atomicAdd(to + 8 * n + 1, sums[n][half + 1]);
    }
  }

  const float scale_;
  const ListTiles& tiles_;
  const long long key_step_;  // floats from one key to the next
  float* sums_;               // of key 0
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
