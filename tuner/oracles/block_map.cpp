// SPDX-License-Identifier: Apache-2.0
// The oracle of op block_map. Each byte states how much of its granule the masks show. The oracle
// computes it element by element on the host, and bytes must be equal. For large maps it checks
// granules spread evenly, and granules near the diagonal. Computes bytes of a block map on the
// host.
#include "tuner/oracles/oracles.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/score/features/score_feature.hpp"
#include "generator/score/features/score_operands.hpp"
#include "generator/score/language/evaluate.hpp"
#include "templates/shared/block_map.h"

namespace attune {
namespace {

constexpr int64_t kMostGranules = 2000;  // of 1024 elements each

// The captures of a problem, in host memory.
class HostScores {
 public:
  HostScores(const Device& device, const Problem& problem, const ScoreOperands& scores)
      : program_(score_program(problem)) {
    const ScoreCaptures wanted = score_captures(problem);
    args_ = score_args(problem, wanted, &scores);
    for (size_t i = 0; i < wanted.captures.size(); ++i) {
      const CaptureSpec& capture = wanted.captures[i];
      int64_t last = 0;
      for (size_t axis = 0; axis < capture.extents.size(); ++axis)
        last += (args_.captures[i].extents[axis] - 1) * args_.captures[i].strides[axis];
      memory_.emplace_back(static_cast<size_t>((last + 1) * capture_bytes(capture.type)), '\0');
      device.copy_to_host(memory_.back().data(), args_.captures[i].data,
                          static_cast<int64_t>(memory_.back().size()));
    }
    for (size_t i = 0; i < memory_.size(); ++i) args_.captures[i].data = memory_[i].data();
    loads_ = score::loads_of(program_, args_);
  }
  HostScores(const HostScores&) = delete;
  HostScores& operator=(const HostScores&) = delete;

  bool shows(const score::Point& point) const {
    return score::evaluate(program_, point, loads_) == point.score;
  }

 private:
  const score::Program program_;
  ScoreArgs args_{};
  std::vector<std::string> memory_;
  score::Loads loads_;
};

struct Place {
  int64_t batch, head, row, key;  // row and key are indices of granules
};

int expected_byte(const Problem& p, const HostScores& scores, const Place& at) {
  score::Point point{.batch = static_cast<int>(at.batch),
                     .head = static_cast<int>(at.head),
                     .kv_head = static_cast<int>(at.head) / (p.num_heads_q / p.num_heads_kv),
                     .seqlen_q = static_cast<int>(p.seqlen_q),
                     .seqlen_kv = static_cast<int>(p.seqlen_kv),
                     .head_dim = p.head_dim_qk};
  bool any = false, all = true;
  const int64_t last_row = std::min((at.row + 1) * kGranuleRows, p.seqlen_q);
  const int64_t last_key = std::min((at.key + 1) * kGranuleKeys, p.seqlen_kv);
  for (int64_t row = at.row * kGranuleRows; row < last_row && !(any && !all); ++row)
    for (int64_t key = at.key * kGranuleKeys; key < last_key; ++key) {
      point.q_idx = static_cast<int>(row);
      point.kv_idx = static_cast<int>(key);
      const bool shown = scores.shows(point);
      any = any || shown;
      all = all && shown;
    }
  return !any ? 0 : all ? kSeenWhole : kSeenInPart;
}

class BlockMapExpectation final : public Expectation {
 public:
  explicit BlockMapExpectation(const OracleBench& bench) : bench_(bench) {}

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    const Problem& p = bench_.problem;
    const OperandSpec map = *operands_of(p).begin();
    if (map.empty() || map.heads == 0) return {};
    const HostScores scores(bench_.device, p, bench_.inputs.scores());
    std::string bytes(static_cast<size_t>(map.batch * operands.o.batch_stride), '\0');
    bench_.device.copy_to_host(bytes.data(), operands.o.data, static_cast<int64_t>(bytes.size()));
    CheckError error;
    const auto look = [&](const Place& at) {
      const auto got = static_cast<uint8_t>(bytes[static_cast<size_t>(
          at.batch * operands.o.batch_stride + at.head * operands.o.head_stride +
          at.row * operands.o.row_stride + at.key)]);
      const int want = expected_byte(p, scores, at);
      if (got == want || error.wrong) return;
      error.max = error.mean = 2;
      error.wrong = fmt::format(
          "the byte of batch {}, head {}, rows from {} and keys from {} on is {}; it should be {}",
          at.batch, at.head, at.row * kGranuleRows, at.key * kGranuleKeys, got, want);
    };
    const int64_t count = map.batch * map.heads * map.rows * map.columns;
    const int64_t step = std::max<int64_t>(1, count / kMostGranules);
    for (int64_t i = 0; i < count; i += step + (step > 1 && i % 2 == 0 ? 1 : 0))
      look({i / map.columns / map.rows / map.heads, i / map.columns / map.rows % map.heads,
            i / map.columns % map.rows, i % map.columns});
    for (int64_t row = 0; row < map.rows; row += std::max<int64_t>(1, map.rows / 64))
      for (int64_t key = row * kGranuleRows / kGranuleKeys - 1;
           key < (row + 1) * kGranuleRows / kGranuleKeys + 1; ++key)
        if (key >= 0 && key < map.columns) look({map.batch - 1, map.heads - 1, row, key});
    return error;
  }

 private:
  const OracleBench bench_;
};

class BlockMapOracle final : public Oracle {
 public:
  Op op() const override { return Op::kBlockMap; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<BlockMapExpectation>(bench);
  }
};

}  // namespace

const Oracle& block_map_oracle() {
  static const BlockMapOracle instance;
  return instance;
}

}  // namespace attune
