// SPDX-License-Identifier: Apache-2.0
// append_kv: stores the rows of k_new and v_new in a cache of pages or slots. It rotates each row
// of K by the angles of the row's position:
//   first' = first * cos - second * sin,  second' = second * cos + first * sin
// A pair (first, second) is columns (i, i + kTurned / 2), or with kInterleaved columns (2 i, 2 i +
// 1). Columns from kTurned on are stored unrotated. A cache of e4m3 or e5m2 gets round(value /
// factor); a quotient beyond the largest finite value becomes that value. A cache of 4 bits gets
// codes and the factors of their groups of columns (pack_groups.cuh). With kTurnsQ the kernel
// also rotates q and stores the result in o, which may be q. Arithmetic is in fp32, rounded once.
// shared/append_rows.h finds the place of each row. The kernel runs on every CUDA arch; it reads
// rows 16 bytes at a time.
//
// The grid has as many blocks as are resident at once; they walk over all rows. The number of rows
// is read on the device.
#include "cuda/small/small_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/cache_features.cuh"
#include "cuda/ptx/eight_elements.cuh"
#include "cuda/ptx/round_8bit.cuh"
#include "cuda/ptx/store_eight.cuh"
#include "cuda/small/pack_groups.cuh"  // where kGroupFactors, else none/
#include "cuda/small/row_factor.cuh"
#include "shared/append_rows.h"
#include "shared/key_factors.h"
#include "shared/scale_args.h"

namespace attune {

constexpr int kWidest = kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV;
constexpr int kSteps = (kWidest / 8 + kLanes - 1) / kLanes;
constexpr int kPairs = kTurned > 0 ? kTurned / 2 : 1;
// True if the partners of eight adjacent columns are also eight adjacent columns, and the angles of
// the eight are aligned to 16 bytes.
constexpr bool kWholeGroups = kInterleaved ? kTurned % 8 == 0 : kPairs % 8 == 0;
static_assert(32 % kLanes == 0 && kThreads % 32 == 0, "the threads of a row stand in one warp");

struct Rule {
  static constexpr bool has_pages = kHasPages, has_begins = kHasBegins, is_turned = kTurned > 0;
  static constexpr int page_rows = kPageRows;
};

struct alignas(8) Codes {
  unsigned word[2];
};

template <Dtype kDtype>
__device__ __forceinline__ unsigned pack_codes(float a, float b, float c, float d) {
  if constexpr (kDtype == Dtype::kInt8) return pack_int8(a, b, c, d);
  if constexpr (kDtype == Dtype::kE4m3 || kDtype == Dtype::kE5m2)
    return pack_fp8<kDtype>(a, b, c, d);
  return 0;
}

// Stores eight values in the cache or in o.
template <Dtype kDtype>
__device__ __forceinline__ void store_values(void* data, long long index, const float* values,
                                             float factor) {
  if constexpr (kDtypeKv != kDtypeQ && kDtype == kDtypeKv) {
    Codes codes;
    float shares[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) shares[i] = __fdiv_rn(values[i], factor);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      codes.word[i] = pack_codes<kDtype>(shares[4 * i], shares[4 * i + 1], shares[4 * i + 2],
                                         shares[4 * i + 3]);
    *reinterpret_cast<Codes*>(static_cast<char*>(data) + index) = codes;
  } else {
    store_eight<kDtype>(data, index, values);
  }
}

template <Dtype kDtype>
__device__ __forceinline__ float load_one(const void* data, long long index) {
  if constexpr (kDtype == Dtype::kFp32) return static_cast<const float*>(data)[index];
  const unsigned short bits = static_cast<const unsigned short*>(data)[index];
  return kDtype == Dtype::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

// Cosines and sines of the eight columns from `column` on. A column that is not rotated has cosine
// 1 and sine 0.
struct Angles {
  float cos[8], sin[8];
};

__device__ __forceinline__ void load_angles(const AppendArgs& append, long long position,
                                            int column, Angles& angles) {
  const long long cos = position * append.cos.row_stride, sin = position * append.sin.row_stride;
  if constexpr (kWholeGroups && !kInterleaved) {
    const int pair = column % kPairs;
    load_eight<kDtypeTable>(append.cos.data, cos + pair, angles.cos);
    load_eight<kDtypeTable>(append.sin.data, sin + pair, angles.sin);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int pair = kInterleaved ? (column + i) / 2 : (column + i) % kPairs;
      const bool is_turned = column + i < kTurned;
      angles.cos[i] = is_turned ? load_one<kDtypeTable>(append.cos.data, cos + pair) : 1.0f;
      angles.sin[i] = is_turned ? load_one<kDtypeTable>(append.sin.data, sin + pair) : 0.0f;
    }
  }
}

// Loads the partners of the eight columns from `column` on. A column that is not rotated gets any
// value.
__device__ __forceinline__ void load_others(const void* data, long long row, int column,
                                            const float* values, float* others) {
  if constexpr (kInterleaved) {
#pragma unroll
    for (int i = 0; i < 8; ++i) others[i] = values[i ^ 1];
  } else if constexpr (kWholeGroups) {
    load_eight<kDtypeQ>(data, row + (column < kPairs ? column + kPairs : column - kPairs), others);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = column + i;
      const int other = at >= kTurned ? at : at < kPairs ? at + kPairs : at - kPairs;
      others[i] = load_one<kDtypeQ>(data, row + other);
    }
  }
}

// True if a column is the second of its pair.
__device__ __forceinline__ bool is_second(int column) {
  return kInterleaved ? column % 2 != 0 : column >= kPairs;
}

__device__ __forceinline__ void turn(const AppendArgs& append, const void* data, long long row,
                                     long long position, int column, float* values) {
  if (column >= kTurned) return;
  float others[8];
  Angles angles;
  load_others(data, row, column, values, others);
  load_angles(append, position, column, angles);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (kTurned % 8 != 0 && column + i >= kTurned) continue;
    const float across = others[i] * angles.sin[i];
    values[i] = fmaf(values[i], angles.cos[i], is_second(column + i) ? across : -across);
  }
}

__device__ __forceinline__ int column_of(int step) {
  return (step * kLanes + static_cast<int>(threadIdx.x % kLanes)) * 8;
}

// Returns the mask of the lanes that share this thread's row.
__device__ __forceinline__ unsigned lanes_of_row() {
  if constexpr (kLanes == 32) return 0xffffffffu;
  return ((1u << kLanes % 32) - 1) << (threadIdx.x % 32 / kLanes * kLanes);
}

// The factor by which a row is divided.
struct RowFactor {
  float value = 1.0f;
  float* made = nullptr;  // address for a factor computed from the row
};

__device__ __forceinline__ RowFactor factor_of(const ScaleView& scale, const AppendRow& row,
                                               unsigned head) {
  RowFactor factor;
  const int of = static_cast<int>(head);
  if constexpr (kHeadFactors) factor.value = cache_factor(scale, of);
  if constexpr (kKeyFactors)
    if (row.page >= 0) factor.value = key_factor(scale, row.page, row.key, of);
  if constexpr (kMakesFactors)
    factor.made = scale.data + key_factor_at(scale, row.page, row.key, of);
  return factor;
}

// Copies the row at `from` to `to` with all lanes of the row. Does nothing unless `is_there`.
template <Dtype kTo, int kHeadDim, bool kTurns, class Groups = NoGroups>
__device__ __forceinline__ void copy_row(const AppendArgs& append, const void* from,
                                         long long first, const AppendRow& row, void* to,
                                         long long place, RowFactor factor, bool is_there,
                                         Groups groups = {}) {
  float values[kSteps][8];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int column = column_of(step);
    if (!is_there || column >= kHeadDim) continue;
    load_eight<kDtypeQ>(from, first + column, values[step]);
    if constexpr (kTurns && kTurned > 0)
      turn(append, from, first, row.position, column, values[step]);
  }
  if constexpr (kMakesFactors) make_factor<kTo, kHeadDim>(values, lanes_of_row(), is_there, factor);
  __syncwarp(lanes_of_row());  // o may be q: wait until all lanes have read it
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    if constexpr (kGroupFactors && kTo == kDtypeKv)
      pack_eight<kHeadDim>(values[step], column_of(step), lanes_of_row(), is_there, factor.value,
                           static_cast<unsigned char*>(to) + place, groups.row);
    else if (is_there && column_of(step) < kHeadDim)
      store_values<kTo>(to, place + column_of(step), values[step], factor.value);
}

__device__ __forceinline__ long long place_in(const OperandView& view, long long batch,
                                              long long row, long long head) {
  return batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
}

// Stores zeros in a row of o if the row has no angles.
__device__ __forceinline__ void clear_row(const OperandView& o, long long place) {
  const float zeros[8] = {};
  for (int step = 0; step < kSteps; ++step)
    if (column_of(step) < kHeadDimQk)
      store_values<kDtypeO>(o.data, place + column_of(step), zeros, 1.0f);
}

// Grid: as many blocks as are resident at once, or fewer if the rows need fewer.
extern "C" __global__ void __launch_bounds__(kThreads)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ ScaleArgs scales, const __grid_constant__ CacheArgs cache,
                  const __grid_constant__ AppendArgs append,
                  const __grid_constant__ GroupFactorArgs groups  // where kGroupFactors
    ) {
  const unsigned heads_kv = static_cast<unsigned>(args.num_heads_kv);
  const unsigned heads = 2 * heads_kv + (kTurnsQ ? static_cast<unsigned>(args.num_heads_q) : 0u);
  const AppendRows rows = append_rows(Rule{}, args, cache, append);
  constexpr unsigned kRowsOfBlock = kThreads / kLanes;
  const unsigned first = blockIdx.x * kRowsOfBlock + threadIdx.x / kLanes;
  const unsigned step = gridDim.x * kRowsOfBlock, more = step / heads, rest = step % heads;
  long long token = first / heads;
  for (unsigned head = first % heads; token < rows.count; token += more) {
    const AppendRow row =
        append_row(Rule{}, args, cache, append, static_cast<int>(rows.first + token));
    const bool is_written = row.page >= 0;
    if (head < heads_kv) {
      copy_row<kDtypeKv, kHeadDimQk, true>(
          append, append.k_new.data, place_in(append.k_new, row.batch, row.row, head), row,
          args.k.data, place_in(args.k, row.page, row.key, head),
          factor_of(scales.k_scale, row, head), is_written, groups_of_k(groups, row, head));
    } else if (head < 2 * heads_kv) {
      const unsigned of_v = head - heads_kv;
      copy_row<kDtypeKv, kHeadDimV, false>(
          append, append.v_new.data, place_in(append.v_new, row.batch, row.row, of_v), row,
          args.v.data, place_in(args.v, row.page, row.key, of_v),
          factor_of(scales.v_scale, row, of_v), is_written, groups_of_v(groups, row, of_v));
    } else if constexpr (kTurnsQ) {
      const unsigned of_q = head - 2 * heads_kv;
      const long long o = place_in(args.o, row.batch, row.row, of_q);
      copy_row<kDtypeO, kHeadDimQk, true>(append, args.q.data,
                                          place_in(args.q, row.batch, row.row, of_q), row,
                                          args.o.data, o, RowFactor{}, row.is_turned);
      if (!row.is_turned) clear_row(args.o, o);
    }
    head += rest;
    if (head >= heads) head -= heads, ++token;
  }
}

}  // namespace attune
