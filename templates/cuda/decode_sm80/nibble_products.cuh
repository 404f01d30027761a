// SPDX-License-Identifier: Apache-2.0
// The work of one warp on the tiles that it reads, for caches of 4 bits: S^T = K Q^T, softmax,
// O^T += V^T P^T. Keys, and then columns of V, are the 16 rows of mma.sync, and rows of Q its 8
// columns. So codes are converted once for 8 or 16 rows of Q, and 8 rows take half of the registers
// and products that 16 take. decode_products.cuh has the work for wider caches; the names are the
// same.
#pragma once

#include "cuda/decode_sm80/decode_query.cuh"
#include "cuda/decode_sm80/decode_scores.cuh"
#include "cuda/decode_sm80/group_factors.cuh"
#include "cuda/decode_sm80/keys_first_softmax.cuh"
#include "cuda/decode_sm80/none/wide_scores.cuh"  // no head of 4 bits is wide
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/stmatrix.cuh"

namespace attune {

class DecodeProducts {
 public:
  // Reads the item's rows of q, as far as they exist.
  __device__ __forceinline__ DecodeProducts(const KernelParts& parts, const DecodeItem& item,
                                            unsigned shared)
      : scores_(item), query_(shared), softmax_(score_unit(parts, item)) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i)
      scores_.see(i, row_of(lane, i), row_of(lane, i) < item.rows);
#pragma unroll
    for (int half = 0; half < kRowTiles; ++half)
      query_.read(parts, item, half, RowsFirst::row_of(lane, half) < item.rows);
    query_.end_reading();
#pragma unroll
    for (int n = 0; n < kOutputFragments; ++n)
      output_[n][0] = output_[n][1] = output_[n][2] = output_[n][3] = 0.0f;
  }

  // Sets the address of the factors of the next tile's groups of columns.
  __device__ __forceinline__ void take_groups(GroupsAddress groups) { groups_ = groups; }
  // Factors of keys belong to wider caches.
  template <class Factors>
  __device__ __forceinline__ void take_factors(Factors) const {}
  // Sets the address of the next tile's keys.
  __device__ __forceinline__ void take_keys(KeysAddress keys) { keys_ = keys; }

  // Adds tile `tile` of the request. Slot `slot` holds it. Keys after the last have factors of 0.
  template <class Columns>
  __device__ __forceinline__ void add(const KernelParts& parts, const Columns&, unsigned slot,
                                      int tile) {
    float scores[KeysFirst::kFragments][4];
    multiply_qk(slot, scores);
    scores_.hide(parts, keys_, tile * kKeys, scores);
    softmax_.raise_row_max(scores, output_);
    multiply_pv(slot + kValuesAt, scores);
  }

  // Tells the join where results are: of 32 columns a lane has four adjacent ones.
  static constexpr int kRowsOfLane = KeysFirst::kRowsOfLane, kPairs = kColumns.v / 16;
  static __device__ __forceinline__ int row_of(int lane, int i) {
    return KeysFirst::row_of(lane, i);
  }
  static __device__ __forceinline__ bool has_sums(int lane) { return lane < 4; }
  static __device__ __forceinline__ constexpr int first_column(int n) { return n / 2 * 32; }
  static __device__ __forceinline__ int lane_column(int n, int lane) {
    return lane / 4 * 4 + n % 2 * 2;
  }

  __device__ __forceinline__ float output(int n, int row, int column) const {
    return without_unit(output_[n * kRowTiles + row / 2][2 * column + row % 2]);
  }
  __device__ __forceinline__ float maximum(int row) const { return softmax_.maximum(row); }
  __device__ __forceinline__ float sum(int row) const { return softmax_.sum(row); }

 private:
  static constexpr int kRowTiles = KeysFirst::kRowTiles;
  static constexpr int kOutputFragments = kColumns.v / 16 * kRowTiles;

  __device__ __forceinline__ void multiply_qk(unsigned k,
                                              float (&scores)[KeysFirst::kFragments][4]) const {
    const int lane = threadIdx.x % 32;
    const unsigned from = k + KTile::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2, head_in_slot());
#pragma unroll
    for (float(&fragment)[4] : scores) fragment[0] = fragment[1] = fragment[2] = fragment[3] = 0.0f;
    const KeyGroups groups(groups_);
#pragma unroll
    for (int step = 0; step < kQkSteps; step += Products::kStepsOfLoad) {
      const unsigned address = KTile::pair(from, step / Products::kStepsOfLoad);
      unsigned q[Products::kStepsOfLoad][4];
      query_.get(step, q);
#pragma unroll
      for (int keys = 0; keys < kKeys / 16; ++keys) {
        unsigned words[4];
        ldmatrix_x4(words, address + keys * 16 * KTile::kRowBytes);
#pragma unroll
        for (int chunk = 0; chunk < 2; ++chunk) {
          if (step + 2 * chunk >= kQkSteps) continue;
          unsigned first[4], second[4];  // of keys 0 to 7 and 8 to 15
          nibbles_to_fp16(words[chunk], groups.at(2 * keys, step / 2 + chunk), first);
          nibbles_to_fp16(words[2 + chunk], groups.at(2 * keys + 1, step / 2 + chunk), second);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const unsigned a[4] = {first[2 * half], second[2 * half], first[2 * half + 1],
                                   second[2 * half + 1]};
#pragma unroll
            for (int rows = 0; rows < kRowTiles; ++rows)
              mma<Products::kMath>(scores[keys * kRowTiles + rows], a, q[2 * chunk + half][rows],
                                   q[2 * chunk + half][2 + rows]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_pv(unsigned v,
                                              float (&scores)[KeysFirst::kFragments][4]) {
    const int lane = threadIdx.x % 32;
    const unsigned from = v + VTile::offset(lane % 16, lane / 16, head_in_slot());
    // The last load may have half of its columns; another slot may follow them.
    const unsigned lone = v + VTile::offset(lane % 16, 0, head_in_slot());
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      unsigned p[kRowTiles][2];
#pragma unroll
      for (int rows = 0; rows < kRowTiles; ++rows) {
        float(&fragment)[4] = scores[step * kRowTiles + rows];
        softmax_.exponentiate(fragment, rows);
#pragma unroll
        for (int half = 0; half < 2; ++half)
          p[rows][half] = movmatrix_transposed(
              pack<Products::kMath>(fragment[2 * half], fragment[2 * half + 1]));
      }
      const ValueGroups groups(groups_, step);
#pragma unroll
      for (int column = 0; column < kColumns.v; column += 64) {
        unsigned words[4];  // 32 columns of keys 0 to 7, of keys 8 to 15, then the next columns
        ldmatrix_x4_trans(words, VTile::pair(column + 32 == kColumns.v ? lone : from, column / 64) +
                                     step * 16 * VTile::kRowBytes);
#pragma unroll
        for (int chunk = 0; chunk < 2; ++chunk) {
          const int block = column / 32 + chunk;
          if (block * 32 >= kColumns.v) continue;
          unsigned first[4], second[4];
          nibbles_to_fp16(words[2 * chunk], groups.at(0, block), first);
          nibbles_to_fp16(words[2 * chunk + 1], groups.at(1, block), second);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const unsigned a[4] = {first[2 * half], first[2 * half + 1], second[2 * half],
                                   second[2 * half + 1]};
#pragma unroll
            for (int rows = 0; rows < kRowTiles; ++rows)
              mma<Products::kMath>(output_[(2 * block + half) * kRowTiles + rows], a, p[rows][0],
                                   p[rows][1]);
          }
        }
      }
    }
  }

  DecodeScores scores_;
  DecodeQuery query_;
  float output_[kOutputFragments][4];
  KeysFirstSoftmax softmax_;
  GroupsAddress groups_{};
  KeysAddress keys_{};
};

}  // namespace attune
