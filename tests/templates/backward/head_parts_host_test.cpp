// SPDX-License-Identifier: Apache-2.0
// Work tiles with parts of heads (split_heads), compiled for the host: their places, the sums that
// they leave and attune_join. Each thread stores known sums in the order of accumulators, and dK
// and dV must be the sums over all heads of the group. Compile definitions: ATTUNE_TEST_RATIO,
// _MASK, _QK, _V (head dims) and _ADDS (1: accumulate).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "generator/core/problem/narrow_float.hpp"

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct Index {
  unsigned x = 0, y = 0;
};
inline Index threadIdx, blockIdx;
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace attune {
using std::max;
using std::min;
constexpr Mask kMask = Mask::ATTUNE_TEST_MASK;
constexpr int kWindowLeft = -1, kWindowRight = -1;
constexpr Dtype kDtypeQ = Dtype::kBf16, kDtypeKv = Dtype::kBf16, kDtypeO = Dtype::kBf16;
constexpr int kGqaRatio = ATTUNE_TEST_RATIO, kVSlices = 1, kLastVColumn = 0, kL2SectionMb = 1;
constexpr int kHeadDimQk = ATTUNE_TEST_QK, kHeadDimV = ATTUNE_TEST_V;
constexpr int kBlockM = 128, kKeyBlockM = 64, kKeyBlockN = 128;
constexpr bool kGradientK = true, kGradientV = true;
constexpr bool kAccumulate = ATTUNE_TEST_ADDS != 0;

inline std::vector<float> all_slices;
inline float* slices_of(const struct AttentionArgs&) { return all_slices.data(); }
}  // namespace attune

#include "cuda/backward_sm90/join.cuh"

namespace attune {
namespace {

constexpr int kHeadsKv = 3, kBatch = 2;
constexpr float kScale = 0.5F;

// Returns the gradient that head `head` of Q adds to an element of dK (`of_dv` 0) or dV.
float addend(int batch, int head, int key, int column, int of_dv) {
  return static_cast<float>((7 * batch + 5 * head + 3 * key + column + of_dv) % 11 - 4);
}

// Returns the row, or key, and the column of accumulator i of a thread of a warpgroup.
int row_of(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8; }
int column_of(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

AttentionArgs arguments(int seqlen_kv, int parts) {
  AttentionArgs args = {};
  args.batch = kBatch;
  args.seqlen_q = 1000;
  args.seqlen_kv = seqlen_kv;
  args.num_heads_kv = kHeadsKv;
  args.num_heads_q = kHeadsKv * kGqaRatio;
  args.softmax_scale = kScale;
  args.num_tiles = (seqlen_kv + kKeyBlockN - 1) / kKeyBlockN * kHeadsKv * kBatch * parts;
  return args;
}

// Stores the sums of a thread for its part of the heads.
template <int kCount>
void store(const AttentionArgs& args, const HeadPart& part, int head, int batch, int first_key,
           int thread, int of_dv) {
  float sums[kCount] = {};
  for (int i = 0; i < kCount; ++i)
    for (int j = part.head_begin; j < part.head_begin + part.heads; ++j)
      sums[i] += addend(batch, head * kGqaRatio + j, first_key + row_of(thread, i),
                        column_of(thread, i), of_dv);
  store_sums(args, all_slices.data(), part.slice, first_key, of_dv != 0 ? kSliceOfDv : 0, sums);
}

// Does for all tiles what keys_tiles.cuh and the consumers do.
void store_tiles(const AttentionArgs& args) {
  const int blocks = (args.seqlen_kv + kKeyBlockN - 1) / kKeyBlockN;
  for (int number = 0; number < args.num_tiles; ++number) {
    const HeadParts parts(args, blocks);
    const TilePlace place = place_of(number, blocks, args.num_heads_kv * parts.count, args.batch,
                                     args.seqlen_q * parts.heads);
    const HeadPart part = parts.part(args, place.head, place.batch);
    for (int thread = 0; thread < 2 * kWarpgroupThreads; ++thread) {
      host_thread = kWarpgroupThreads + thread;
      const int of_group = thread % kWarpgroupThreads;
      const int first_key = place.block * kKeyBlockN + thread / kWarpgroupThreads * kWarpgroupRows;
      const int head = parts.head(place.head);
      store<kHeadDimQk / 2>(args, part, head, place.batch, first_key, of_group, 0);
      store<kHeadDimV / 2>(args, part, head, place.batch, first_key, of_group, 1);
    }
  }
}

using Element = std::conditional_t<kAccumulate, float, unsigned short>;
constexpr float kBefore = 3.F;  // the value of each element before an addition

struct Gradient {
  int columns, seqlen_kv;
  std::vector<Element> values{};

  Gradient(int all_columns, int keys) : columns(all_columns), seqlen_kv(keys) {
    values.assign(static_cast<size_t>(kBatch * keys * kHeadsKv * all_columns),
                  kAccumulate ? static_cast<Element>(kBefore) : static_cast<Element>(0x7FC0));
  }
  OperandView view() {
    return {values.data(), static_cast<long long>(seqlen_kv) * kHeadsKv * columns,
            static_cast<long long>(kHeadsKv) * columns, columns};
  }
  float at(int batch, int key, int head, int column) const {
    return load_element(
        kAccumulate ? Dtype::kFp32 : Dtype::kBf16, values.data(),
        ((static_cast<int64_t>(batch) * seqlen_kv + key) * kHeadsKv + head) * columns + column);
  }
};

void join(const AttentionArgs& args, Gradient* dk, Gradient* dv) {
  GradientArgs gradients = {};
  gradients.dk = dk->view();
  gradients.dv = dv->view();
  const int blocks = (args.seqlen_kv + kWarpgroupRows - 1) / kWarpgroupRows;
  for (blockIdx.y = 0; blockIdx.y < static_cast<unsigned>(backward_join_blocks(kSliceColumns));
       ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < static_cast<unsigned>(blocks * kHeadsKv * kBatch);
         ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < kWarpgroupThreads; ++threadIdx.x)
        attune_join(args, gradients);
}

// Expects the sums over all heads of the group, rounded once.
void expect_sums(const Gradient& found, int of_dv) {
  for (int batch = 0; batch < kBatch; ++batch)
    for (int key = 0; key < found.seqlen_kv; ++key)
      for (int head = 0; head < kHeadsKv; ++head)
        for (int column = 0; column < found.columns; ++column) {
          float sum = 0;
          for (int i = 0; i < kGqaRatio; ++i)
            sum += addend(batch, head * kGqaRatio + i, key, column, of_dv);
          if (of_dv == 0) sum *= kScale;
          unsigned short rounded = 0;
          store_element(Dtype::kBf16, &rounded, 0, sum);
          const float wanted =
              kAccumulate ? kBefore + sum : load_element(Dtype::kBf16, &rounded, 0);
          ASSERT_EQ(found.at(batch, key, head, column), wanted)
              << batch << " " << key << " " << head << " " << column << " " << of_dv;
        }
}

TEST(HeadPartsOnTheHost, TheirSumsAreTheGradientsOfWholeGroups) {
  for (const int seqlen_kv : {1, 64, 128, 300})
    for (const int parts : {1, 2, 3, kGqaRatio}) {
      if (parts > kGqaRatio) continue;
      const AttentionArgs args = arguments(seqlen_kv, parts);
      all_slices.assign(static_cast<size_t>(backward_slice_place(
                            kBatch * kHeadsKv * parts, 0, seqlen_kv, kKeyBlockN, kSliceColumns)),
                        std::numeric_limits<float>::quiet_NaN());
      store_tiles(args);
      for (const float value : all_slices) ASSERT_FALSE(std::isnan(value)) << "no thread wrote it";
      Gradient dk(kHeadDimQk, seqlen_kv), dv(kHeadDimV, seqlen_kv);
      join(args, &dk, &dv);
      expect_sums(dk, 0);
      expect_sums(dv, 1);
    }
}

}  // namespace
}  // namespace attune
