// SPDX-License-Identifier: Apache-2.0
// The CUDA kernel append_kv over caches of 4 bits, compiled for the host, where each thread is a
// fiber: factors of groups of columns, and codes. A row takes a whole warp, whose lanes so stay
// together. CMakeLists.txt defines the constants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "generator/core/problem/narrow_float.hpp"
#include "tests/templates/host/block_of_fibers.hpp"

namespace attune {
inline float __fdiv_rn(float a, float b) { return a / b; }
using std::fmaf;
using std::max;
}  // namespace attune

#include "cuda/small/append_kv.cu"

namespace attune {
namespace {

static_assert(kLanes == 32 && kTurned == 0 && !kHasBegins);
constexpr int kRequests = 3, kRows = 2, kHeads = 2, kLongest = 21, kPages = 4;
constexpr int kKeys = kHasPages ? kPageRows : kLongest;

// A cache of K or V, its factors, and its new rows.
struct Half {
  int columns;
  std::vector<Vector16> rows;
  std::vector<unsigned char> codes, factors;

  explicit Half(int of, std::mt19937& random)
      : columns(of),
        rows(static_cast<size_t>(kRequests * kRows * kHeads * of / 8)),
        codes(static_cast<size_t>(kPages * kKeys * kHeads * of / 2), 0xee),
        factors(static_cast<size_t>(kPages * kKeys * kHeads * line()), 0xee) {
    std::normal_distribution<float> normal;
    for (int i = 0; i < kRequests * kRows * kHeads * of; ++i)
      store_element(kDtypeQ, rows.data(), i,
                    i < 3 * kGroupColumns ? 0
                    : i % 97 == 5         ? NAN
                                          : 4 * normal(random));
  }
  int line() const { return group_row_bytes(columns, kGroupColumns); }
  OperandView new_rows() {
    return {rows.data(), kRows * kHeads * columns, kHeads * columns, columns};
  }
  OperandView cache() {
    const int row = columns / 2;
    return {codes.data(), kKeys * kHeads * row, kHeads * row, row};
  }
  OperandView groups() {  // keys of a head are adjacent
    return {factors.data(), kKeys * kHeads * line(), line(), kKeys * line()};
  }
  // Checks the codes and factors of a row; then erases them.
  void check(int batch, int row, int head, int page, int key, float of_head) {
    const int from = ((batch * kRows + row) * kHeads + head) * columns;
    unsigned char* const to =
        &codes[static_cast<size_t>(((page * kKeys + key) * kHeads + head) * columns / 2)];
    unsigned char* const at =
        &factors[static_cast<size_t>(((page * kHeads + head) * kKeys + key) * line())];
    for (int first = 0; first < columns; first += kGroupColumns) {
      float largest = 0;
      for (int i = first; i < first + kGroupColumns; ++i)
        largest = std::fmax(largest, std::fabs(load_element(kDtypeQ, rows.data(), from + i)));
      const float most = kDtypeKv == Dtype::kInt4 ? 7 : 6;
      const unsigned char factor = to_e4m3(largest / (most * of_head));
      EXPECT_EQ(at[first / kGroupColumns], factor) << "column " << first;
      for (int i = first; i < first + kGroupColumns; ++i) {
        const float value = load_element(kDtypeQ, rows.data(), from + i);
        const float share = value / (from_e4m3(factor) * of_head);
        std::vector<unsigned char> want(1);
        store_element(kDtypeKv, want.data(), 0, factor == 0 ? 0 : share);
        EXPECT_EQ(load_element(kDtypeKv, to, i), load_element(kDtypeKv, want.data(), 0))
            << "column " << i << " of " << value;
      }
    }
    std::fill_n(to, columns / 2, static_cast<unsigned char>(0xee));
    std::fill_n(at, columns / kGroupColumns, static_cast<unsigned char>(0xee));
  }
};

TEST(AppendNibbles, CodesAndFactorsFollowFromRows) {
  std::mt19937 random(3);
  Half k(kHeadDimQk, random), v(kHeadDimV, random);
  float heads[kHeads] = {0.7F, 1.9F};
  const int lengths[kRequests] = {kLongest, 1, 7}, slots[kRequests] = {2, 0, 3};
  const int width = (kLongest + kKeys - 1) / kKeys;
  std::vector<int> table;
  for (int i = 0; i < kRequests * width; ++i) table.push_back((i * 3 + 1) % kPages);
  AttentionArgs args{};
  args.k = k.cache(), args.v = v.cache();
  args.batch = kRequests, args.seqlen_q = kRows, args.seqlen_kv = kLongest;
  args.num_heads_q = args.num_heads_kv = kHeads;
  ScaleArgs scales{};
  scales.k_scale = scales.v_scale = {heads, 0, 1, 0, 1};
  const CacheArgs cache{lengths, nullptr, table.data(), slots, width, kPages, nullptr};
  AppendArgs append{};
  append.k_new = k.new_rows(), append.v_new = v.new_rows();
  append.index_bytes = 4;
  const GroupFactorArgs groups{k.groups(), v.groups()};
  gridDim.x = 2;
  for (unsigned block = 0; block < gridDim.x; ++block) {
    blockIdx.x = block;
    BlockOfFibers::run(kThreads, [&] { attune_kernel(args, scales, cache, append, groups); });
  }
  for (int request = 0; request < kRequests; ++request)
    for (int row = 0; row < kRows; ++row) {
      const int position = lengths[request] - kRows + row;
      if (position < 0) continue;
      const int page = kHasPages ? table[static_cast<size_t>(request * width + position / kKeys)]
                                 : slots[request];
      for (int head = 0; head < kHeads; ++head) {
        k.check(request, row, head, page, position % kKeys, heads[head]);
        v.check(request, row, head, page, position % kKeys, heads[head]);
      }
    }
  for (const Half* half : {&k, &v})
    for (const auto* bytes : {&half->codes, &half->factors})
      EXPECT_EQ(std::count(bytes->begin(), bytes->end(), 0xee), std::ssize(*bytes))
          << "what is not written is as it was";
}

}  // namespace
}  // namespace attune
