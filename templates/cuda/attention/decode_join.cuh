// SPDX-License-Identifier: Apache-2.0
// The end of a piece: the warps of a block are joined through shared memory; where an item has several parts, each block leaves its own in
// the workspace and takes a ticket, and the last of them joins all in their order. So results do not depend on who is last, nobody waits,
// and tickets are zero again afterwards.
#pragma once

#include "cuda/attention/decode_products.cuh"
#include "cuda/attention/sinks.cuh"  // where kSinks
#include "cuda/ptx/exp2.cuh"

namespace attune {

constexpr int kThreads = kWarps * 32;

// Of a row: the largest score in log2, and the sum of weights below it.
struct DecodeStats {
  float maximum, sum;
};

class DecodeJoin {
 public:
  __device__ __forceinline__ DecodeJoin(const KernelParts& parts, char* shared)
      : parts_(parts),
        values_(reinterpret_cast<float*>(shared + kShared.join_at)),
        stats_(reinterpret_cast<DecodeStats*>(shared + kShared.stats_at)),
        is_last_(reinterpret_cast<int*>(shared + kShared.ticket_at)) {}

  // By all threads of the block. `item` has at least one row.
  __device__ __forceinline__ void finish(const DecodeItem& item, const DecodePiece& piece,
                                         const DecodeProducts& products) {
    join_stats(item.rows, products);
    const bool alone = piece.parts == 1;
    float* const part = slot(piece.slot);
    join_values(item.rows, products, [&](int row, int column, float first, float second) {
      if (alone) return store(item, row, column, first, second, of_block(row));
      float* const to = part + row * kHeadDimV + column;
      __stcg(reinterpret_cast<float2*>(to), make_float2(first, second));
    });
    const int thread = threadIdx.x;
    if (alone) {
      if (thread < item.rows) store_lse(item, thread, of_block(thread));
      __syncthreads();  // shared memory is free again
      return;
    }
    if (thread < item.rows) __stcg(stats_in(part) + thread, as_float2(of_block(thread)));
    if (!take_ticket(piece)) return;
    join_parts(item, piece);
  }

 private:
  static __device__ __forceinline__ float2 as_float2(DecodeStats stats) {
    return make_float2(stats.maximum, stats.sum);
  }
  __device__ __forceinline__ float* slot(int number) const {
    const long long items = static_cast<long long>(parts_.base.batch) * items_of_request();
    return reinterpret_cast<float*>(static_cast<char*>(parts_.base.workspace) +
                                    decode_ticket_bytes(items)) +
           number * decode_part_floats(kDecodeRows, kHeadDimV);
  }
  static __device__ __forceinline__ float2* stats_in(float* part) {
    return reinterpret_cast<float2*>(part + kDecodeRows * kHeadDimV);
  }
  __device__ __forceinline__ int items_of_request() const {
    return parts_.base.num_heads_kv * decode_row_tiles(parts_.base.seqlen_q, kGqaRatio);
  }
  // Those of all warps.
  __device__ __forceinline__ DecodeStats& of_block(int row) const {
    return stats_[kWarps * kDecodeRows + row];
  }

  __device__ __forceinline__ void join_stats(int rows, const DecodeProducts& products) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = products.sum(half);
      if (lane % 4 == 0)
        stats_[warp * kDecodeRows + lane / 4 + 8 * half] = {products.maximum(half), sum};
    }
    __syncthreads();
    const int row = threadIdx.x;
    if (row < rows) {
      DecodeStats all{kLowestMax, 0.0f};
#pragma unroll
      for (int i = 0; i < kWarps; ++i)
        all.maximum = fmaxf(all.maximum, stats_[i * kDecodeRows + row].maximum);
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        const DecodeStats one = stats_[i * kDecodeRows + row];
        all.sum += one.sum * exp2_approx(one.maximum - all.maximum);
      }
      of_block(row) = all;
    }
    __syncthreads();
  }

  // Calls `take(row, column, value of column, value of column + 1)` for each two columns of the rows.
  template <class Take>
  __device__ __forceinline__ void join_values(int rows, const DecodeProducts& products,
                                              const Take& take) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int columns = min(kHeadDimV, kDecodeJoinFloats / rows / 8 * 8);  // at a time
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      factor[half] =
          row < rows ? exp2_approx(products.maximum(half) - of_block(row).maximum) : 0.0f;
    }
    for (int first = 0; first < kHeadDimV; first += columns) {
      if (first > 0) __syncthreads();
      float* const own = values_ + warp * kDecodeJoinFloats;
#pragma unroll
      for (int n = 0; n < kOutputTiles; ++n) {
        const int column = 8 * n - first;
        if (column < 0 || column >= columns) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = lane / 4 + 8 * half;
          if (row < rows)
            *reinterpret_cast<float2*>(own + row * columns + column + lane % 4 * 2) =
                make_float2(products.output(n, half, 0) * factor[half],
                            products.output(n, half, 1) * factor[half]);
        }
      }
      __syncthreads();
      const int here = min(columns, kHeadDimV - first);
      for (int i = threadIdx.x * 2; i < rows * here; i += kThreads * 2) {
        const int row = i / here, column = i % here;
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          const float2 one = *reinterpret_cast<const float2*>(values_ + w * kDecodeJoinFloats +
                                                              row * columns + column);
          sum.x += one.x;
          sum.y += one.y;
        }
        take(row, first + column, sum.x, sum.y);
      }
    }
  }

  // Whether this block is the last of the item's.
  __device__ __forceinline__ bool take_ticket(const DecodePiece& piece) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      auto* const ticket = static_cast<unsigned*>(parts_.base.workspace) +
                           static_cast<long long>(piece.request) * items_of_request() + piece.item;
      const auto last = static_cast<unsigned>(piece.parts - 1);
      *is_last_ = atomicInc(ticket, last) == last ? 1 : 0;  // back to 0 behind the last
    }
    __syncthreads();
    const bool is_last = *is_last_ != 0;
    if (is_last) __threadfence();
    return is_last;
  }

  // Slots of parts after the first stand two apart; that of the first is its worker's second.
  __device__ __forceinline__ float* part_of(const DecodePiece& piece, int part) const {
    const int of_first = piece.slot - (piece.part == 0 ? 1 : 0) - 2 * piece.part;
    return slot(of_first + 2 * part + (part == 0 ? 1 : 0));
  }

  __device__ __forceinline__ void join_parts(const DecodeItem& item, const DecodePiece& piece) {
    join_stats_of_parts(item.rows, piece);
    // Groups of threads take parts in turn.
    constexpr int kOfRow = kHeadDimV / 4;
    const int wanted = item.rows * kOfRow;
    const int room = min(kThreads / wanted, kWarps * kDecodeJoinFloats / (4 * wanted));
    const int groups = room < 1 ? 1 : min(room, piece.parts);
    for (int first = 0; first < wanted; first += kThreads) {
      const int thread = threadIdx.x, at = first + (groups > 1 ? thread % wanted : thread);
      const int group = groups > 1 ? thread / wanted : 0;
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (at < wanted && group < groups) sum = sum_of_parts(piece, at / kOfRow, at % kOfRow * 4, group, groups);
      if (groups > 1) {
        auto* const shared = reinterpret_cast<float4*>(values_);
        if (group < groups) shared[group * wanted + at] = sum;
        __syncthreads();
        for (int i = 1; group == 0 && i < groups; ++i) add(shared[i * wanted + at], 1.0f, &sum);
      }
      if (at < wanted && group == 0) {
        const int row = at / kOfRow, column = at % kOfRow * 4;
        store(item, row, column, sum.x, sum.y, of_block(row));
        store(item, row, column + 2, sum.z, sum.w, of_block(row));
      }
    }
    if (threadIdx.x < item.rows) store_lse(item, threadIdx.x, of_block(threadIdx.x));
    __syncthreads();
  }

  // A warp takes a row, its lanes parts.
  __device__ __forceinline__ void join_stats_of_parts(int rows, const DecodePiece& piece) {
    const int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32; row < rows; row += kWarps) {
      float maximum = kLowestMax, sum = 0.0f;
      for (int part = lane; part < piece.parts; part += 32)
        maximum = fmaxf(maximum, __ldcg(stats_in(part_of(piece, part)) + row).x);
#pragma unroll
      for (int other = 16; other > 0; other /= 2)
        maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, other));
      for (int part = lane; part < piece.parts; part += 32) {
        const float2 one = __ldcg(stats_in(part_of(piece, part)) + row);
        sum += one.y * exp2_approx(one.x - maximum);
      }
#pragma unroll
      for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
      if (lane == 0) of_block(row) = {maximum, sum};
    }
    __syncthreads();
  }

  static __device__ __forceinline__ void add(const float4& value, float weight, float4* sum) {
    sum->x += weight * value.x;
    sum->y += weight * value.y;
    sum->z += weight * value.z;
    sum->w += weight * value.w;
  }

  __device__ __forceinline__ float4 sum_of_parts(const DecodePiece& piece, int row, int column,
                                                 int group, int groups) const {
    const float maximum = of_block(row).maximum;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (int part = group; part < piece.parts; part += groups) {
      float* const from = part_of(piece, part);
      const float weight = exp2_approx(__ldcg(stats_in(from) + row).x - maximum);
      add(__ldcg(reinterpret_cast<const float4*>(from + row * kHeadDimV + column)), weight, &sum);
    }
    return sum;
  }

  // What a row of O is multiplied by, and its LSE: of one that saw nothing 0 and -infinity.
  __device__ __forceinline__ void end_row(const DecodeItem& item, int row, DecodeStats stats,
                                          float& inverse, float& lse) const {
    constexpr float kLn2 = 0.69314718055994531f;
    inverse = stats.sum == 0.0f ? 0.0f : __fdiv_rn(1.0f, stats.sum);
    lse = (stats.maximum + log2_approx(stats.sum)) * kLn2;
    join_sink(parts_.scores, item.head(row), inverse, lse);  // where kSinks
  }
  __device__ __forceinline__ void store(const DecodeItem& item, int row, int column, float first,
                                        float second, DecodeStats stats) const {
    float inverse, lse;
    end_row(item, row, stats, inverse, lse);
    auto* const o = static_cast<unsigned short*>(parts_.base.o.data) + item.in(parts_.base.o, row);
    *reinterpret_cast<unsigned*>(o + column) = pack<kDtypeO>(first * inverse, second * inverse);
  }
  __device__ __forceinline__ void store_lse(const DecodeItem& item, int row,
                                            DecodeStats stats) const {
    if (parts_.base.lse == nullptr) return;
    float inverse, lse;
    end_row(item, row, stats, inverse, lse);
    parts_.base.lse[item.in_lse(parts_.base, row)] = lse;
  }

  const KernelParts& parts_;
  float* const values_;
  DecodeStats* const stats_;
  int* const is_last_;
};

}  // namespace attune
