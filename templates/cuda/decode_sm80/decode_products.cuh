// SPDX-License-Identifier: Apache-2.0
// The work of one warp of a decode kernel on the tiles that it reads: S = Q K^T, softmax, O += P V
// with mma.sync, for 16 rows of q and kKeys keys. Each warp has its own largest scores, sums and O;
// decode_join.cuh joins them.
#pragma once

#include "cuda/decode_sm80/decode_columns.cuh"
#include "cuda/decode_sm80/decode_factors.cuh"  // where kKeyFactors, else none/
#include "cuda/decode_sm80/decode_items.cuh"
#include "cuda/decode_sm80/decode_rings.cuh"
#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/decode_sm80/head_factors.cuh"    // where kHeadFactors, else none/
#include "cuda/decode_sm80/products_16bit.cuh"  // unless kAccuracy, else products_8bit.cuh
#include "cuda/decode_sm80/products_4bit.cuh"   // where kGroupFactors
#include "cuda/decode_sm80/wide_scores.cuh"     // where kWideHeads, else none/
#include "cuda/parts/online_softmax.cuh"
#include "cuda/parts/score_of.cuh"  // where kScored, else none/
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

constexpr int kQkSteps = kColumns.qk / 16, kScoreTiles = kKeys / 8, kOutputTiles = kColumns.v / 8;
static_assert(kHeadDimQk % 16 == 0 && kHeadDimV % 16 == 0 && kKeys % 16 == 0, "steps of mma.sync");

constexpr float kLog2E = 1.4426950408889634f;
using Products = CacheProducts<kKvBits>;
constexpr bool kKeepsQ = decode_keeps_q(kColumns.qk);  // q stays in shared memory

class DecodeProducts {
 public:
  // Reads the item's rows of q, as far as they exist.
  __device__ __forceinline__ DecodeProducts(const KernelParts& parts, const DecodeItem& item,
                                            unsigned shared)
      : item_(item),
        kept_q_(shared + kShared.q_at + threadIdx.x / 32 * decode_q_bytes(kColumns.qk)),
        softmax_({score_unit(parts, item)}) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      const bool exists = row < item.rows;
      seen_[half] = decode_keys(DecodeRule{}, item.request, exists ? item.token(row) : 0);
      if (!exists) seen_[half] = {0, item.request.length - 1};
      const auto* const q =
          reinterpret_cast<const unsigned*>(static_cast<const unsigned short*>(parts.base.q.data) +
                                            (exists ? item.in(parts.base.q, row) : 0));
#pragma unroll
      for (int step = 0; step < kQkSteps; ++step) {
        const int at = Products::first_word(lane, step), word = KeyColumns::in_head(step * 16) / 2;
        const bool has = exists && KeyColumns::exists(step * 16);
        unsigned first = has ? __ldg(q + word + at) : 0u;
        unsigned second = has ? __ldg(q + word + at + Products::kSecondWord) : 0u;
        first = Products::q_word(first);
        second = Products::q_word(second);
        Products::arrange(first, second);
        if constexpr (kKeepsQ) {
          const unsigned to = kept_q_ + row * kQRowBytes + step * 32 + lane % 4 * 4;
          store_shared_word(to, static_cast<int>(first));
          store_shared_word(to + 16, static_cast<int>(second));
        } else {
          q_[step][half] = first;
          q_[step][half + 2] = second;
        }
      }
    }
    if constexpr (kKeepsQ) __syncwarp();
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
      output_[0][n][0] = output_[0][n][1] = output_[0][n][2] = output_[0][n][3] = 0.0f;
  }

  // Sets the address of the factors of the next tile's keys.
  __device__ __forceinline__ void take_factors(FactorsAddress factors) { factors_ = factors; }

  // Sets the address of the factors of the next tile's groups of columns.
  __device__ __forceinline__ void take_groups(GroupsAddress groups) { groups_ = groups; }

  // Sets the address of the next tile's keys.
  __device__ __forceinline__ void take_keys(KeysAddress keys) { keys_ = keys; }

  // Adds tile `tile` of the request. Slot `slot` holds it.
  __device__ __forceinline__ void add(const KernelParts& parts, ColumnScores& columns,
                                      unsigned slot, int tile) {
    const int first_key = tile * kKeys, keys = item_.request.length - first_key;
    if (kLoads != 0 && !kGroupFactors && keys < kKeys) clear_values(slot, keys);
    float scores[1][kScoreTiles][4];
    multiply_qk(slot, scores[0]);
    columns.join(scores[0]);
    key_factors_.multiply_scores(factors_, scores[0]);
    key_factors_.raise_unit(factors_, output_[0]);
    hide(parts, first_key, scores[0]);
    softmax_.raise_row_max(scores, output_);
    multiply_pv(slot + kValuesAt, scores[0]);
  }

  __device__ __forceinline__ float output(int n, int half, int column) const {
    return without_unit(key_factors_.output(Products::output(output_[0], n, half, column)));
  }
  __device__ __forceinline__ float maximum(int half) const { return softmax_.maximum(0, half); }
  // Returns the sum, the same in the row's four lanes. All lanes of the warp must call it.
  __device__ __forceinline__ float sum(int half) const {
    float sum = softmax_.sum(0, half);
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
  }

 private:
  // Returns the factor that the softmax multiplies scores by; score programs return scores in log2.
  static __device__ __forceinline__ float score_unit(const KernelParts& parts,
                                                     const DecodeItem& item) {
    return kIsScored ? 1.0f
                     : scaled_by_k(parts.scales, item.kv_head,
                                   without_unit(parts.base.softmax_scale_log2));
  }

  static __device__ __forceinline__ int head_in_slot() { return kTogether ? head_in_gang() : 0; }

  // Zeroes V after the last key: the slot may hold NaN there, and P = 0 does not hide NaN. Codes of
  // 4 bits are never NaN.
  static __device__ __forceinline__ void clear_values(unsigned slot, int keys) {
    constexpr int kChunks = kColumns.v / kChunkColumns;
    for (int i = threadIdx.x % 32; i < (kKeys - keys) * kChunks; i += 32) {
      const int chunk = i % kChunks, of_pair = kChunks % 2 == 0 ? i % 2 : chunk % 2;
      store_shared_16(
          VTile::pair(slot + kValuesAt + VTile::offset(keys + i / kChunks, of_pair, head_in_slot()),
                      chunk / 2),
          {{0, 0, 0, 0}});
    }
    fence_proxy_async();  // before the next copy into this slot
    __syncwarp();
  }

  static constexpr int kQRowBytes = kColumns.qk * 2 + 16;
  __device__ __forceinline__ void get_q(int step, unsigned (&q)[4]) const {
    if constexpr (kKeepsQ) {
      const int lane = threadIdx.x % 32;
      ldmatrix_x4(q, kept_q_ + lane % 16 * kQRowBytes + lane / 16 * 16 + step * 32);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) q[i] = q_[step][i];
    }
  }

  __device__ __forceinline__ void multiply_qk(unsigned k, float (&scores)[kScoreTiles][4]) const {
    const int lane = threadIdx.x % 32;
    const unsigned from = k + KTile::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2, head_in_slot());
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n)
      scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0f;
    const KeyGroups groups(groups_);
#pragma unroll
    for (int step = 0; step < kQkSteps; step += Products::kStepsOfLoad) {
      const unsigned address = KTile::pair(from, step / Products::kStepsOfLoad);
      unsigned q[Products::kStepsOfLoad][4];
#pragma unroll
      for (int i = 0; i < Products::kStepsOfLoad; ++i) get_q(min(step + i, kQkSteps - 1), q[i]);
#pragma unroll
      for (int n = 0; n < kScoreTiles; n += 2) {
        unsigned b[4];
        ldmatrix_x4(b, address + n * 8 * KTile::kRowBytes);
        Products::add_qk(scores, n, q, b, groups, step, kQkSteps);
      }
    }
  }

  // Applies the score program, and hides the keys that a row does not see. In most tiles all rows
  // see all keys.
  __device__ __forceinline__ void hide(const KernelParts& parts, int first_key,
                                       float (&scores)[kScoreTiles][4]) const {
    const int key = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
    const TileKeys keys(keys_, key);
    if constexpr (kIsScored) apply_program(parts, keys, scores);
    if constexpr (kKeyLists) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (keys.at(n, i) < 0) scores[n][i] = hidden_score();
      }
      return;
    }
    const int last_key = first_key + kKeys - 1;
    const bool whole = first_key >= seen_[0].first && first_key >= seen_[1].first &&
                       last_key <= seen_[0].last && last_key <= seen_[1].last;
    if (__all_sync(~0u, whole)) return;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = key + n * 8 + i % 2;
        if (at < seen_[i / 2].first || at > seen_[i / 2].last) scores[n][i] = hidden_score();
      }
    }
  }

  __device__ __forceinline__ void apply_program(const KernelParts& parts, const TileKeys& keys,
                                                float (&scores)[kScoreTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8;
        const int batch = item_.batch(), head = item_.head(row), kv_head = item_.kv_head;
        const int position = item_.position(row), at = keys.at(n, i);
        float score = without_unit(scores[n][i] * parts.base.softmax_scale);
        score = scaled_by_k(parts.scales, kv_head, score);
        score = score_of(parts.scores, score, batch, head, kv_head, position, at);
        scores[n][i] = score * kLog2E;
      }
    }
  }

  __device__ __forceinline__ void multiply_pv(unsigned v, float (&scores)[kScoreTiles][4]) {
    const int lane = threadIdx.x % 32;
    const unsigned from = v + VTile::offset(lane % 16, lane / 16, head_in_slot());
    // With narrow codes the last load may have half of its columns; another slot may follow them.
    const unsigned lone = kNarrow ? v + VTile::offset(lane % 16, 0, head_in_slot()) : from;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      unsigned p[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&fragment)[4] = scores[2 * step + half];
        softmax_.exponentiate(fragment, 0);
        key_factors_.multiply_weights(factors_, 2 * step + half, fragment);
        p[2 * half] = pack<Products::kMath>(fragment[0], fragment[1]);
        p[2 * half + 1] = pack<Products::kMath>(fragment[2], fragment[3]);
      }
      const ValueGroups groups(groups_, step);
#pragma unroll
      for (int n = 0; n < kOutputTiles; n += 2 * Products::kStepsOfLoad) {
        unsigned b[4];
        const unsigned rows = kNarrow && n + Products::kStepsOfLoad == kOutputTiles ? lone : from;
        ldmatrix_x4_trans(
            b, VTile::pair(rows, n / 2 / Products::kStepsOfLoad) + step * 16 * VTile::kRowBytes);
        Products::add_pv(output_[0], n, p, b, groups);
      }
    }
  }

  const DecodeItem& item_;
  const unsigned kept_q_;
  unsigned q_[kKeepsQ ? 1 : kQkSteps][4];
  DecodeKeys seen_[2];
  float output_[1][kOutputTiles][4];
  OnlineSoftmax<1> softmax_;
  KeyFactors key_factors_;
  FactorsAddress factors_{};
  GroupsAddress groups_{};
  KeysAddress keys_{};
};

}  // namespace attune
