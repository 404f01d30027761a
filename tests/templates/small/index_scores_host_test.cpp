// SPDX-License-Identifier: Apache-2.0
// The CUDA kernel index_scores_sm80, compiled for the host, where each thread is a fiber: scores
// equal those of float64, also where rows see few keys of a block, or none. CMakeLists.txt defines
// the constants.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cuda/ptx/shared_memory.cuh"
#include "generator/core/problem/narrow_float.hpp"
#include "tests/templates/host/block_of_fibers.hpp"

namespace attune {
inline unsigned shared_address(const void*) { return 0; }  // dynamic shared memory begins there
}  // namespace attune

#include "cuda/index_scores_sm80/index_scores_sm80.cu"

namespace attune {

thread_local unsigned char memory[1];

namespace {

constexpr int kKvHeads = 2, kBatch = 2;

class IndexScoresHost : public testing::Test {
 protected:
  void check(int rows, int keys, const std::vector<int>& lengths = {}) {
    rows_ = rows, keys_ = keys, lengths_ = lengths;
    draw(&q_, kBatch * rows * kKvHeads * kGqaRatio * kHeadDimQk);
    draw(&k_, kBatch * keys * kKvHeads * kHeadDimQk);
    std::normal_distribution<float> normal;
    weights_.resize(static_cast<size_t>(kBatch * rows * kKvHeads * kGqaRatio));
    for (float& weight : weights_) weight = normal(random_);
    factors_.resize(static_cast<size_t>(kBatch * keys * kKvHeads));
    for (float& factor : factors_) factor = 1 + std::fabs(normal(random_));
    o_.assign(static_cast<size_t>(kBatch * rows * kKvHeads * keys), NAN);
    run();
    for (int batch = 0; batch < kBatch; ++batch)
      for (int row = 0; row < rows; ++row)
        for (int head = 0; head < kKvHeads; ++head)
          for (int key = 0; key < keys; ++key) check_score(batch, row, head, key);
  }

 private:
  void draw(std::vector<Vector16>* tensor, int count) {
    std::normal_distribution<float> normal;
    tensor->assign(static_cast<size_t>(count * kElementBytes / 16), {});
    for (int i = 0; i < count; ++i) store_element(kDtypeQ, tensor->data(), i, normal(random_));
  }

  void run() {
    const int heads = kKvHeads * kGqaRatio;
    AttentionArgs args{};
    args.q = {q_.data(), int64_t{1} * rows_ * heads * kHeadDimQk, heads * kHeadDimQk, kHeadDimQk};
    args.k = {k_.data(), int64_t{1} * keys_ * kKvHeads * kHeadDimQk, kKvHeads * kHeadDimQk,
              kHeadDimQk};
    args.o = {o_.data(), int64_t{1} * rows_ * kKvHeads * keys_, kKvHeads * keys_, keys_};
    args.batch = kBatch, args.num_heads_q = heads, args.num_heads_kv = kKvHeads;
    args.seqlen_q = rows_, args.seqlen_kv = keys_;
    ScaleArgs scales{};
    scales.q_scale = {weights_.data(), int64_t{1} * rows_ * heads, 1, heads, 1};
    scales.k_scale = {factors_.data(), int64_t{1} * keys_ * kKvHeads, 1, kKvHeads, 1};
    if (!lengths_.empty())
      scales.v_scale = {reinterpret_cast<float*>(lengths_.data()), rows_, 0, 1, 1};
    const int blocks =
        (keys_ + kKeys - 1) / kKeys * ((rows_ + kRows - 1) / kRows) * kBatch * kKvHeads;
    for (int block = 0; block < blocks; ++block) {
      blockIdx.x = static_cast<unsigned>(block);
      shared_memory.assign(static_cast<size_t>(kStages * kStage), 0xff);  // NaN
      late_copies.clear();
      BlockOfFibers::run(kThreads, [&] { attune_kernel(args, scales); });
    }
  }

  void check_score(int batch, int row, int head, int key) const {
    const float got =
        o_[static_cast<size_t>(((batch * rows_ + row) * kKvHeads + head) * keys_ + key)];
    int end = keys_;
    if (kMask == Mask::kCausalTopLeft) end = std::min(end, row + 1);
    if (kMask == Mask::kCausalBottomRight) end = std::min(end, row + 1 + keys_ - rows_);
    if (!lengths_.empty()) end = std::min(end, lengths_[static_cast<size_t>(batch * rows_ + row)]);
    if (key >= end) {
      ASSERT_EQ(got, -INFINITY) << "row " << row << ", key " << key;
      return;
    }
    double sum = 0, terms = 0;
    for (int i = 0; i < kGqaRatio; ++i) {
      const int of_q = (batch * rows_ + row) * kKvHeads * kGqaRatio + head * kGqaRatio + i;
      const int of_k = (batch * keys_ + key) * kKvHeads + head;
      double product = 0;
      for (int d = 0; d < kHeadDimQk; ++d)
        product += static_cast<double>(load_element(kDtypeQ, q_.data(), of_q * kHeadDimQk + d)) *
                   load_element(kDtypeQ, k_.data(), of_k * kHeadDimQk + d);
      sum += static_cast<double>(weights_[static_cast<size_t>(of_q)]) * std::max(0.0, product);
      terms += std::fabs(static_cast<double>(weights_[static_cast<size_t>(of_q)]) * product);
    }
    if (kElementBytes == 1)
      sum *= static_cast<double>(
          factors_[static_cast<size_t>((batch * keys_ + key) * kKvHeads + head)]);
    ASSERT_NEAR(got, sum, 1e-4 * (1 + terms)) << "row " << row << ", key " << key;
  }

  std::mt19937 random_{11};
  int rows_ = 0, keys_ = 0;
  std::vector<int> lengths_;
  std::vector<Vector16> q_, k_;
  std::vector<float> weights_, factors_, o_;
};

TEST_F(IndexScoresHost, WholeAndPartialBlocks) {
  check(1, 1);
  check(3, kKeys);
  check(2 * kRows + 1, kKeys + 17);
}

TEST_F(IndexScoresHost, LengthsOfRows) {
  check(5, kKeys + 40, {0, 1, 16, 17, kKeys, kKeys + 1, kKeys + 40, 9999, -4, 8});
}

}  // namespace
}  // namespace attune
