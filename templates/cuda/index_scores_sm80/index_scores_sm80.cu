// SPDX-License-Identifier: Apache-2.0
// index_scores_sm80: the scores by which an indexer chooses keys. For each row and key
//   o[row, key] = k_scale[key] * sum over heads of q_scale[row, head] * max(0, q[row, head] k[key])
// The heads of q share the key's head. A key that the mask or the row's length hides gets
// -infinity. NaN stays NaN. Products are those of bf16, fp16 or e4m3 with fp32 accumulators
// (mma.sync, sm_80; e4m3 from sm_89 on). Knobs and shared memory: README.md.
//
// Keys are the rows of a product and heads its columns. A warp keeps its keys in registers and
// takes one row of q after the other from shared memory. Lane l holds, with g = l / 4 and t = l %
// 4, the products of keys g and g + 8 of a tile with heads 2 t and 2 t + 1 of eight.
#include "cuda/index_scores_sm80/index_scores_sm80_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/mma_fp8.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/layouts/index_scores_layout.h"
#include "shared/scale_args.h"
#include "shared/score_ranks.h"

namespace attune {

constexpr int kThreads = kWarps * 32, kKeysOfWarp = kTiles * 16, kKeys = kWarps * kKeysOfWarp;
constexpr int kHeads = index_heads(kGqaRatio), kHeadBytes = kHeadDimQk * kElementBytes;
constexpr int kLine = index_line_bytes(kHeadBytes);
constexpr int kStage = index_stage_bytes(kGqaRatio, kHeadBytes);
constexpr int kChunks = kHeadBytes / 64;  // 64 bytes of a head are the k of two products
static_assert(kHeadBytes % 64 == 0, "lanes load 16 bytes of each 64 bytes of a head");
static_assert(kTiles == 1 || kTiles == 2, "a lane writes at most one score of a row");
static_assert(kRows <= kThreads, "each row's keys are counted by one thread");

struct Rule {
  Mask mask = kMask;
  int window_left = -1, window_right = -1;
};

// The keys and rows of a thread block.
struct Place {
  int batch, kv_head, first_row, rows, first_key;

  // Grid: batch entries x heads of k x blocks of rows x blocks of keys.
  __device__ __forceinline__ explicit Place(const AttentionArgs& args) {
    const unsigned key_blocks = (static_cast<unsigned>(args.seqlen_kv) + kKeys - 1) / kKeys;
    const unsigned row_blocks = (static_cast<unsigned>(args.seqlen_q) + kRows - 1) / kRows;
    const unsigned line = blockIdx.x / key_blocks, heads = static_cast<unsigned>(args.num_heads_kv);
    first_key = static_cast<int>(blockIdx.x % key_blocks) * kKeys;
    first_row = static_cast<int>(line % row_blocks) * kRows;
    rows = min(kRows, args.seqlen_q - first_row);
    kv_head = static_cast<int>(line / row_blocks % heads);
    batch = static_cast<int>(line / row_blocks / heads);
  }
  __device__ __forceinline__ int key_of_warp() const {
    return first_key + static_cast<int>(threadIdx.x / 32) * kKeysOfWarp;
  }
};

__device__ __forceinline__ int lane_group() { return static_cast<int>(threadIdx.x % 32 / 4); }
__device__ __forceinline__ int lane_in_group() { return static_cast<int>(threadIdx.x % 4); }

// Returns the address of a row of a head, in bytes.
__device__ __forceinline__ const char* row_address(const OperandView& view, int batch, int row,
                                                   int head) {
  return static_cast<const char*>(view.data) +
         (batch * view.batch_stride + row * view.row_stride + head * view.head_stride) *
             kElementBytes;
}

// Starts the copy of a row of q and its weights to a stage. Heads past the last one are zero.
__device__ __forceinline__ void copy_row(const AttentionArgs& args, const ScaleView& weights,
                                         const Place& place, int row, unsigned stage) {
  constexpr int kUnits = kHeadBytes / 16;
  const int first_head = place.kv_head * kGqaRatio;
#pragma unroll
  for (int first = 0; first < kHeads * kUnits; first += kThreads) {
    const int unit = first + static_cast<int>(threadIdx.x), head = unit / kUnits;
    if (unit >= kHeads * kUnits) break;
    const bool exists = head < kGqaRatio;
    const char* from = row_address(args.q, place.batch, row, first_head + (exists ? head : 0));
    cp_async_16<0>(stage + head * kLine + unit % kUnits * 16, from + unit % kUnits * 16,
                   exists ? 16 : 0);
  }
  for (int head = static_cast<int>(threadIdx.x); head < kHeads; head += kThreads) {
    const bool exists = head < kGqaRatio;
    const int of_q = first_head + (exists ? head : 0);
    cp_async_4(stage + kHeads * kLine + head * 4,
               weights.data + place.batch * weights.batch_stride +
                   of_q / weights.heads_per_scale * weights.head_stride +
                   row * weights.block_stride,
               exists ? 4 : 0);
  }
}

// 16 bytes of a line as words of products: e4m3 becomes fp16 if products do not take it.
struct Words {
  static constexpr int kCount = kUnpack ? 8 : 4;
  unsigned word[kCount];
};

__device__ __forceinline__ Words words_of(const Vector16& vector) {
  Words words;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kUnpack)
      unpack_fp8<Dtype::kE4m3>(vector.word[i], words.word[2 * i], words.word[2 * i + 1]);
    else
      words.word[i] = vector.word[i];
  }
  return words;
}

// The keys of a warp: of each 64 bytes of keys g and g + 8 of a tile, 16 bytes.
struct Keys {
  Words low[kTiles][kChunks], high[kTiles][kChunks];

  // Keys past the last one repeat it.
  __device__ __forceinline__ void load(const AttentionArgs& args, const Place& place) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int key = place.key_of_warp() + tile * 16 + lane_group(), last = args.seqlen_kv - 1;
      const char* from = row_address(args.k, place.batch, min(key, last), place.kv_head);
      const char* from_high = row_address(args.k, place.batch, min(key + 8, last), place.kv_head);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const int at = chunk * 64 + lane_in_group() * 16;
        low[tile][chunk] = words_of(*reinterpret_cast<const Vector16*>(from + at));
        high[tile][chunk] = words_of(*reinterpret_cast<const Vector16*>(from_high + at));
      }
    }
  }
};

__device__ __forceinline__ float weighted(float weight, float product) {
  return weight * (product < 0.0f ? 0.0f : product);
}

// Returns the score of a row and the key g + 8 (t % 2) of tile t / 2, where t is the lane's number
// in its group. With one tile, lanes with t >= 2 have no key.
__device__ __forceinline__ float score_of_row(const Keys& keys, unsigned stage) {
  float sums[kTiles][2] = {};
  const unsigned line = stage + lane_group() * kLine + lane_in_group() * 16;
  const unsigned weights = stage + kHeads * kLine + lane_in_group() * 8;
#pragma unroll 1
  for (int eight = 0; eight < kHeads / 8; ++eight) {
    float products[kTiles][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const Words q = words_of(load_shared_16(line + eight * 8 * kLine + chunk * 64));
#pragma unroll
      for (int i = 0; i < Words::kCount; i += 2)
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const Words &low = keys.low[tile][chunk], &high = keys.high[tile][chunk];
          const unsigned k[4] = {low.word[i], high.word[i], low.word[i + 1], high.word[i + 1]};
          mma<kUnpack ? Dtype::kFp16 : kDtypeQ>(products[tile], k, q.word[i], q.word[i + 1]);
        }
    }
    const float first = __uint_as_float(load_shared_word(weights + eight * 32));
    const float second = __uint_as_float(load_shared_word(weights + eight * 32 + 4));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        sums[tile][i] +=
            weighted(first, products[tile][2 * i]) + weighted(second, products[tile][2 * i + 1]);
  }
  float mine = 0.0f;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    float& sum = sums[i / 2][i % 2];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (lane_in_group() == i) mine = sum;
  }
  return mine;
}

// The key whose scores a lane writes; may be past the last key.
__device__ __forceinline__ int key_of_lane(const Place& place) {
  const int t = lane_in_group();
  return place.key_of_warp() + t / 2 * 16 + t % 2 * 8 + lane_group();
}

// Returns the factor of the lane's key.
__device__ __forceinline__ float factor_of_key(const ScaleView& factors, const Place& place,
                                               int key) {
  if (kElementBytes > 1 || factors.data == nullptr) return 1.0f;
  return factors.data[place.batch * factors.batch_stride +
                      place.kv_head / factors.heads_per_scale * factors.head_stride +
                      key * factors.block_stride];
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ ScaleArgs scales) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ int keys_of_rows[kRows];  // that each row sees
  if (args.seqlen_kv == 0) return;
  const Place place(args);
  if (place.batch >= args.batch) return;
  if (static_cast<int>(threadIdx.x) < place.rows)
    keys_of_rows[threadIdx.x] =
        num_keys_of_row(Rule{}, args, scales.v_scale, place.batch, place.kv_head * kGqaRatio,
                        place.first_row + static_cast<int>(threadIdx.x));
  Keys keys;
  keys.load(args, place);
  const int key = key_of_lane(place);
  const bool has_key = lane_in_group() < kTiles * 2 && key < args.seqlen_kv;
  const float factor = has_key ? factor_of_key(scales.k_scale, place, key) : 1.0f;
  __syncthreads();
  const auto stage_of = [&](int row) { return shared_address(memory) + row % kStages * kStage; };
  const auto copy = [&](int row) {  // rows that see no key of the block are left out
    if (row < place.rows && keys_of_rows[row] > place.first_key)
      copy_row(args, scales.q_scale, place, place.first_row + row, stage_of(row));
    cp_async_commit();
  };
#pragma unroll
  for (int row = 0; row < kStages - 1; ++row) copy(row);
#pragma unroll 1
  for (int row = 0; row < place.rows; ++row) {
    cp_async_wait<kStages - 2>();
    __syncthreads();  // this row is complete, and the stage of the row before is free
    copy(row + kStages - 1);
    const int end = keys_of_rows[row];
    float score = 0.0f;
    if (place.key_of_warp() < end) score = score_of_row(keys, stage_of(row));
    if (has_key)
      static_cast<float*>(args.o.data)[place.batch * args.o.batch_stride +
                                       (place.first_row + row) * args.o.row_stride +
                                       place.kv_head * args.o.head_stride + key] =
          key < end ? factor * score : __uint_as_float(0xff800000u);
  }
}

}  // namespace attune
