// SPDX-License-Identifier: Apache-2.0
// The CUDA kernel append_kv, compiled for the host and run one thread after the other: rows of
// ragged requests, positions outside of the cache, q rotated into separate memory. CMakeLists.txt
// defines the constants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "generator/core/problem/narrow_float.hpp"

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __grid_constant__

namespace attune {

struct Index {
  unsigned x;
};
inline Index threadIdx, blockIdx, gridDim;
inline void __syncwarp(unsigned) {}
template <class Word>
Word __shfl_xor_sync(unsigned, Word value, int) {
  return value;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
using std::fmaf;
using std::max;

}  // namespace attune

#include "cuda/small/append_kv.cu"

namespace attune {
namespace {

constexpr int kRequests = 5, kMost = 4, kHeads = 6, kKvHeads = 2, kLongest = 40;
constexpr int kKeys = kHasPages ? kPageRows : kLongest, kWidth = (kLongest + kKeys - 1) / kKeys;
constexpr int kPages = kRequests * kWidth + 1;

struct Place {
  int batch, row, head;
};

// [batch, rows, heads, columns] of a type, with NaN or random numbers.
struct Tensor {
  Dtype dtype;
  int64_t rows, heads, columns;
  std::vector<Vector16> memory;

  Tensor(Dtype of, int64_t batch, int64_t num_rows, int64_t num_heads, int64_t num_columns)
      : dtype(of),
        rows(num_rows),
        heads(num_heads),
        columns(num_columns),
        memory(static_cast<size_t>(batch * rows * heads * columns * dtype_bytes(of) / 16),
               {{~0u, ~0u, ~0u, ~0u}}) {}
  OperandView view() { return {memory.data(), rows * heads * columns, heads * columns, columns}; }
  float get(const Place& at, int column) const {
    return load_element(dtype, memory.data(),
                        ((at.batch * rows + at.row) * heads + at.head) * columns + column);
  }
  void draw(int64_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count * columns; ++i)
      store_element(dtype, memory.data(), i, normal(random));
  }
};

// Returns half a step of the type at a value, plus fp32's rounding error.
double allowed(Dtype dtype, double value) {
  if (dtype == Dtype::kInt8) return 0.5 + 4e-6;
  const int bits = dtype == Dtype::kFp32   ? 23
                   : dtype == Dtype::kBf16 ? 7
                   : dtype == Dtype::kFp16 ? 10
                   : dtype == Dtype::kE4m3 ? 3
                                           : 2;
  const int least = dtype == Dtype::kE4m3 ? -6 : dtype == Dtype::kE5m2 || bits == 10 ? -14 : -126;
  const int exponent = value == 0 ? least : std::max(std::ilogb(value), least);
  return std::ldexp(0.5, exponent - bits) + 4e-6;
}

constexpr int kAll = kRequests * kMost, kBatch = kHasBegins ? 1 : kRequests;
constexpr int kRows = kHasBegins ? kAll : kMost, kPairsOfCase = kTurned > 0 ? kTurned / 2 : 1;
constexpr bool kNarrow = kDtypeKv != kDtypeQ;

struct Case {
  const int lengths[kRequests] = {kLongest, 2, 0, 17, kLongest + 1};
  const int counts[kRequests] = {kMost, kHasBegins ? 0 : kMost, kHasBegins ? 1 : kMost, kMost,
                                 kMost};
  int begins[kRequests + 1] = {}, table[kRequests][kWidth], slots[kRequests];
  float factors[2] = {0.7F, 1.9F};
  Tensor k{kDtypeQ, kBatch, kRows, kKvHeads, kHeadDimQk}, v{kDtypeQ, kBatch, kRows, kKvHeads, 64};
  Tensor q{kDtypeQ, kBatch, kRows, kHeads, kHeadDimQk},
      o{kDtypeO, kBatch, kRows, kHeads, kHeadDimQk};
  Tensor cos{Dtype::kFp32, 1, kLongest, 1, (kPairsOfCase + 7) / 8 * 8}, sin = cos;
  Tensor k_cache{kDtypeKv, kPages, kKeys, kKvHeads, kHeadDimQk};
  Tensor v_cache{kDtypeKv, kPages, kKeys, kKvHeads, kHeadDimV};

  Case() {
    std::mt19937 random(5);
    k.draw(kAll * kKvHeads, random), v.draw(kAll * kKvHeads, random);
    q.draw(kAll * kHeads, random), cos.draw(kLongest, random), sin.draw(kLongest, random);
    for (int i = 0; i < kRequests; ++i) {
      begins[i + 1] = begins[i] + counts[i];
      slots[i] = (i * 2 + 1) % kPages;
      for (int j = 0; j < kWidth; ++j) table[i][j] = kPages - 1 - (i * kWidth + j);
    }
    table[3][14 / kKeys % kWidth] = kPages;  // a page that the cache does not have
  }

  void run() {
    AttentionArgs args{};
    args.q = q.view(), args.k = k_cache.view(), args.v = v_cache.view(), args.o = o.view();
    args.batch = kRequests, args.seqlen_q = kMost, args.seqlen_kv = kLongest;
    args.num_heads_q = kHeads, args.num_heads_kv = kKvHeads;
    ScaleArgs scales{};
    scales.k_scale = scales.v_scale = {factors, 0, 1, 0, 1};
    const CacheArgs cache{lengths, begins, table[0], slots, kWidth, kPages, nullptr};
    AppendArgs append{};
    append.k_new = k.view(), append.v_new = v.view();
    append.cos = cos.view(), append.sin = sin.view();
    append.num_positions = kLongest, append.index_bytes = 4;
    gridDim.x = 3;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < kThreads; ++threadIdx.x)
        attune_kernel(args, scales, cache, append, {});
  }

  double turned(const Tensor& x, const Place& from, int position, int column) const {
    const double own = x.get(from, column);
    if (column >= kTurned) return own;
    const int half = kPairsOfCase;
    const bool second = kInterleaved ? column % 2 == 1 : column >= half;
    const int pair = kInterleaved ? column / 2 : column % half;
    const double other = x.get(from, kInterleaved ? column ^ 1
                                     : second     ? column - half
                                                  : column + half);
    const double by_cos = cos.get({0, position, 0}, pair), by_sin = sin.get({0, position, 0}, pair);
    return own * by_cos + (second ? other : -other) * by_sin;
  }

  // Row `i` of a request; whether it is written.
  bool check_row(int request, int i) const {
    const int position = lengths[request] - counts[request] + i;
    const int batch = kHasBegins ? 0 : request, row = kHasBegins ? begins[request] + i : i;
    const bool stands = position >= 0 && position < kLongest;
    for (int head = 0; kTurnsQ && head < kHeads; ++head)
      for (int c = 0; c < kHeadDimQk; ++c) {
        const double want = stands ? turned(q, {batch, row, head}, position, c) : 0;
        EXPECT_NEAR(o.get({batch, row, head}, c), want, allowed(kDtypeO, want));
      }
    const int page = !stands     ? kPages
                     : kHasPages ? table[request][position / kKeys]
                                 : slots[request];
    if (page >= kPages) return false;
    for (int head = 0; head < kKvHeads; ++head) {
      const double by = kNarrow ? double(factors[head]) : 1;
      const Place to{page, position % kKeys, head}, from{batch, row, head};
      for (int c = 0; c < kHeadDimQk; ++c) {
        const double want = turned(k, from, position, c) / by;
        EXPECT_NEAR(k_cache.get(to, c), want, allowed(kDtypeKv, want));
      }
      for (int c = 0; c < kHeadDimV; ++c) {
        const double want = double(v.get(from, c)) / by;
        EXPECT_NEAR(v_cache.get(to, c), want, allowed(kDtypeKv, want));
      }
    }
    return true;
  }
};

// True if a place is unchanged: NaN, or for int8 its initial -1.
bool is_untouched(const Tensor& cache, const Place& at) {
  for (int c = 0; c < kHeadDimQk; ++c) {
    const float value = cache.get(at, c);
    if (kDtypeKv == Dtype::kInt8 ? value != -1 : !std::isnan(value)) return false;
  }
  return true;
}

TEST(AppendKv, RowsAreWrittenToTheirPlaces) {
  Case made;
  made.run();
  int written = 0, found = 0;
  for (int request = 0; request < kRequests; ++request)
    for (int i = 0; i < made.counts[request]; ++i) written += made.check_row(request, i) ? 1 : 0;
  for (int page = 0; page < kPages; ++page)
    for (int key = 0; key < kKeys; ++key)
      found += is_untouched(made.k_cache, {page, key, 1}) ? 0 : 1;
  EXPECT_GT(written, 6);
  EXPECT_EQ(found, written) << "what is not written is as it was";
}

}  // namespace
}  // namespace attune
