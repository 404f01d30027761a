// SPDX-License-Identifier: Apache-2.0
// The CUDA kernel top_k, compiled for the host, where each thread is a fiber: lists equal those of
// a sort, for scores whose last chosen rank is found by one pass, by many, or by the order of equal
// ones. CMakeLists.txt defines the constants.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "generator/core/problem/narrow_float.hpp"
#include "tests/templates/host/block_of_fibers.hpp"

#include "cuda/small/top_k.cu"

namespace attune {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int rows, keys, length;
};

// Scores [rows, keys], lists and counts of one call.
class TopKHost : public testing::Test {
 protected:
  using Draw = std::function<float(int key)>;

  void check(const Case& at, const Draw& draw, const std::vector<int>& lengths = {}) {
    const int64_t stride = (at.keys + kPerVector - 1) / kPerVector * kPerVector;
    memory_.assign(static_cast<size_t>(at.rows * stride * kScoreBytes / 16 + 1),
                   {{~0u, ~0u, ~0u, ~0u}});
    for (int row = 0; row < at.rows; ++row)
      for (int key = 0; key < at.keys; ++key)
        store_element(kDtypeQ, memory_.data(), row * stride + key, draw(key));
    std::vector<int> lists(static_cast<size_t>(at.rows * at.length), -7),
        counts(static_cast<size_t>(at.rows), -7);
    AttentionArgs args{};
    args.q = {memory_.data(), 0, stride, 0};
    args.o = {lists.data(), 0, at.length, 0};
    args.lse = reinterpret_cast<float*>(counts.data());
    args.batch = args.num_heads_q = args.num_heads_kv = 1;
    args.seqlen_q = at.rows, args.seqlen_kv = at.keys;
    args.num_tiles = at.length;
    ScaleArgs scales{};
    scales.v_scale = {nullptr, 0, 0, 1, 1};
    if (!lengths.empty()) {
      lengths_ = lengths;
      scales.v_scale.data = reinterpret_cast<float*>(lengths_.data());
    }
    for (unsigned row = 0; row < static_cast<unsigned>(at.rows); ++row) {
      blockIdx.x = row;
      BlockOfFibers::run(kThreads, [&] { attune_kernel(args, scales); });
    }
    for (int row = 0; row < at.rows; ++row) {
      const std::vector<int> want = chosen(at, row, row * stride);
      ASSERT_EQ(counts[static_cast<size_t>(row)], static_cast<int>(want.size())) << "row " << row;
      for (size_t i = 0; i < static_cast<size_t>(at.length); ++i)
        ASSERT_EQ(lists[static_cast<size_t>(row * at.length) + i], i < want.size() ? want[i] : -1)
            << "row " << row << ", entry " << i;
    }
  }
  Draw normal(float mean = 0) {
    return [this, mean](int) { return mean + std::normal_distribution<float>()(random_); };
  }

  std::mt19937 random_{7};

 private:
  // The definition: a stable sort by descending score.
  std::vector<int> chosen(const Case& at, int row, int64_t first) const {
    int end = at.keys;
    if (kMask == Mask::kCausalTopLeft) end = std::min(end, row + 1);
    if (kMask == Mask::kCausalBottomRight) end = std::min(end, row + 1 + at.keys - at.rows);
    if (!lengths_.empty()) end = std::min(end, lengths_[static_cast<size_t>(row)]);
    std::vector<int> keys;
    const auto score = [&](int key) { return load_element(kDtypeQ, memory_.data(), first + key); };
    for (int key = 0; key < end; ++key)
      if (score(key) != -kInfinity) keys.push_back(key);
    std::stable_sort(keys.begin(), keys.end(), [&](int a, int b) {
      const float x = score(a), y = score(b);
      return std::isnan(x) != std::isnan(y) ? std::isnan(x) : x > y;
    });
    keys.resize(std::min(keys.size(), static_cast<size_t>(at.length)));
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  std::vector<Vector16> memory_;
  std::vector<int> lengths_;
};

TEST_F(TopKHost, NormalScores) {
  for (const Case& at : {Case{2, 5000, 300}, {1, 4096, 4}, {3, 1023, 1000}, {2, 77, 80}, {2, 1, 4}})
    check(at, normal());
}

// Keys above the floor of a sample, over several windows of bits.
TEST_F(TopKHost, LongRows) {
  check({1, 70001, 200}, normal());
  check({1, 70001, 2048}, [this](int) { return static_cast<float>(random_() % 50000); });
}

// A sample misleads: more keys than candidates reach its floor, or fewer than the list takes.
TEST_F(TopKHost, MisleadingSamples) {
  check({1, 70001, 300},
        [](int key) { return key % 16 == 0 ? 2.0F : 1.0F / static_cast<float>(key + 1); });
  check({1, 20000, 300},
        [](int key) { return key % 20 < 4 ? 2.0F + static_cast<float>(key) : 1.0F; });
  check({1, 20000, 300},
        [](int key) { return key % 20 < 4 || key % 40 > 30 ? 0.0F : static_cast<float>(key); });
}

TEST_F(TopKHost, ListsLongerThanCandidates) { check({1, 9000, 4500}, normal()); }

TEST_F(TopKHost, ScoresInANarrowIntervalWithOutliers) {
  for (const float outlier : {1e30F, -1e30F, kInfinity})
    check({1, 5000, 600}, [&, draw = normal(10)](int key) {
      return key % 500 == 9 ? outlier : draw(key) / 64 + 10;
    });
}

TEST_F(TopKHost, EqualScores) {
  check({1, 5000, 300}, [](int) { return 1.5F; });
  check({1, 5000, 300}, [](int key) { return key % 7 == 0 ? 2.0F : key % 7 == 1 ? 0.0F : -0.0F; });
  check({2, 5000, 1200}, [this](int) { return static_cast<float>(random_() % 5); });
  check({2, 5000, 1200}, [this](int) { return static_cast<float>(random_() % 100); });
}

TEST_F(TopKHost, InfinitiesAndNan) {
  const float some[] = {kInfinity, -kInfinity, kNan, -kNan, 0, -0.0F, 1, -1, 1e-40F, 65504};
  check({2, 3000, 1200}, [&](int) { return some[random_() % 10]; });
  check({2, 300, 280}, [&](int) { return some[random_() % 10]; });
  check({1, 300, 8}, [](int) { return -kInfinity; });
  check({1, 3000, 8}, [](int) { return kNan; });
}

TEST_F(TopKHost, RisingAndFallingScores) {
  check({1, 5000, 500}, [](int key) { return static_cast<float>(key); });
  check({1, 5000, 500}, [](int key) { return static_cast<float>(-key); });
}

TEST_F(TopKHost, LengthsOfRows) { check({5, 3000, 100}, normal(), {0, 1, 99, 2500, 9000}); }

TEST_F(TopKHost, NegativeLengthsAreEmpty) { check({2, 300, 4}, normal(), {-3, 5}); }

}  // namespace
}  // namespace attune
