// SPDX-License-Identifier: Apache-2.0
// The oracle of op prefill: the reference template on the same device, with fp32 output. 8-bit
// kernels are also checked with a V of mean 1, so that long sums over keys have terms of one sign.
// For the allowed errors see verify.hpp. Compares regions of a prefill with the reference.
#include "tuner/oracles/oracles.hpp"

#include <algorithm>

#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"
#include "runtime/operands/operands.hpp"
#include "tuner/oracles/attention_regions.hpp"
#include "tuner/oracles/standard_attention.hpp"

namespace attune {
namespace {

constexpr float kMean = 1;  // the mean of V in the extra check for 8 bits

// One output of the reference on one region: [batch, rows, heads, columns], or [batch, heads, rows]
// for row sums.
struct ExpectedOutput {
  Role role;
  std::vector<float> values;
};

struct Expected {
  CheckRegion region;
  std::vector<ExpectedOutput> outputs;
};

OperandView part_of(const OperandView& view, int64_t batch, int64_t row, int64_t head,
                    Dtype dtype) {
  OperandView part = view;
  const int64_t elements =
      batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
  part.data = static_cast<char*>(view.data) + elements * dtype_bytes(dtype);
  return part;
}

ScaleView part_of(const ScaleView& view, int64_t batch, int64_t head) {
  ScaleView part = view;
  if (view.data != nullptr)
    part.data += batch * view.batch_stride + head / view.heads_per_scale * view.head_stride;
  return part;
}

class AttentionExpectation final : public Expectation {
 public:
  explicit AttentionExpectation(const OracleBench& bench)
      : bench_(bench),
        problem_(bench.problem),
        ratio_(problem_.num_heads_q / problem_.num_heads_kv),
        operands_(operands_of(problem_)) {
    const CheckPlan plan = check_plan(problem_, check_flops_limit(target() == Target::kCpu));
    for (const CheckRegion& region : plan.regions)
      expected_.push_back(expect(plan, region, bench_.inputs.set(0)));
    if (!is_8_bit(problem_)) return;
    v_with_mean_ = bench_.inputs.with_mean(Role::kV, kMean);
    Operands operands = bench_.inputs.set(0);
    operands.v = *v_with_mean_;
    expected_sums_ = expect(plan, plan.regions.back(), operands);  // sees the most keys
  }

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    Comparison comparison(problem_, weights_on(target()));
    for (const Expected& expected : expected_) compare(expected, operands, &comparison);
    CheckError error = comparison.result();
    if (v_with_mean_ && !error.wrong) error.wrong = check_sums(launch);
    return error;
  }

 private:
  Target target() const { return bench_.device.target(); }

  Expected expect(const CheckPlan& plan, const CheckRegion& region, const Operands& all) const {
    const Problem part = region_problem(problem_, plan, region);
    const int64_t batch = region.batch_begin, head = region.kv_head_begin;
    Operands operands = contiguous_operands(part, nullptr, nullptr, nullptr, nullptr, nullptr);
    operands.q = part_of(all.q, batch, region.row_begin, head * ratio_, problem_.dtype_q);
    operands.k = part_of(all.k, batch, 0, head, problem_.dtype_kv);
    operands.v = part_of(all.v, batch, 0, head, problem_.dtype_kv);
    operands.k_scale = part_of(all.k_scale, batch, head);
    operands.v_scale = part_of(all.v_scale, batch, head);
    const DeviceMemory q_factors = q_factors_of(part, region, &operands.q_scale);
    const ScoreOperands scores = scores_of(region);
    operands.scores = &scores;
    DropoutArgs dropout{};
    dropout.head0 = static_cast<unsigned>(batch * problem_.num_heads_q + head * ratio_);
    dropout.row0 = static_cast<unsigned>(region.row_begin);
    operands.dropout = &dropout;
    Expected expected{region, {}};
    std::vector<DeviceMemory> memories;
    for (const OperandSpec& output : operands_of(part)) {
      if (!output.written) continue;
      const int64_t count = output.batch * output.rows * output.heads * output.columns;
      expected.outputs.push_back({output.role, std::vector<float>(static_cast<size_t>(count))});
      memories.emplace_back(bench_.device, count * static_cast<int64_t>(sizeof(float)));
      if (kind_of(output.role) == OperandKind::kTensor)
        (operands.*tensor_of(output.role)).data = memories.back().data();
      else if (output.role == Role::kOScale)  // the largest logits
        operands.o_scale = {reinterpret_cast<float*>(memories.back().data()), 0, 1, 0, 1};
      else
        operands.lse = reinterpret_cast<float*>(memories.back().data());
    }
    bench_.run_reference(part, operands);
    for (size_t i = 0; i < memories.size(); ++i)
      bench_.device.copy_to_host(expected.outputs[i].values.data(), memories[i].data(),
                                 memories[i].bytes());
    return expected;
  }

  // Returns score operands for a region, in which its rows and keys have their positions in the
  // whole problem.
  ScoreOperands scores_of(const CheckRegion& region) const {
    ScoreOperands scores = bench_.inputs.scores();
    const std::vector<CaptureSpec> captures = captures_of(problem_);
    for (size_t i = 0; i < captures.size(); ++i)
      std::copy(captures[i].extents.begin(), captures[i].extents.end(), scores.captures[i].extents);
    scores.batch0 = static_cast<int>(region.batch_begin);
    scores.head0 = region.kv_head_begin * ratio_;
    scores.q_position0 = static_cast<int>(region.row_begin);
    scores.seqlen_q = problem_.seqlen_q;
    scores.seqlen_kv = problem_.seqlen_kv;
    return scores;
  }

  // Returns factors of q as the reference expects them: one for each kSliceRows rows of the region.
  DeviceMemory q_factors_of(const Problem& part, const CheckRegion& region, ScaleView* view) const {
    const int block = problem_.fp8.scale_block_q;
    const int64_t first_head = int64_t{region.kv_head_begin} * ratio_;
    *view = part_of(bench_.inputs.set(0).q_scale, region.batch_begin, first_head);
    if (block == 0) return {};
    const int64_t blocks = (part.seqlen_q + kSliceRows - 1) / kSliceRows;
    std::vector<float> factors;
    for (int64_t b = 0; b < part.batch; ++b)
      for (int64_t head = 0; head < part.num_heads_q; ++head)
        for (int64_t i = 0; i < blocks; ++i)
          factors.push_back(bench_.inputs.factor(Role::kQScale, region.batch_begin + b,
                                                 first_head + head,
                                                 (region.row_begin + i * kSliceRows) / block));
    DeviceMemory memory(bench_.device, static_cast<int64_t>(factors.size() * sizeof(float)));
    bench_.device.copy_to_device(memory.data(), factors.data(), memory.bytes());
    *view = {reinterpret_cast<float*>(memory.data()), part.num_heads_q * blocks, blocks, 1, 1};
    return memory;
  }

  const OperandSpec& whole(Role role) const {
    for (const OperandSpec& operand : operands_)
      if (operand.role == role) return operand;
    throw Error(ErrorCode::kInternal,
                "the reference wrote an output that the problem does not have");
  }

  // Calls `row(want, got, columns, place)` for each row of a tensor.
  template <class Row>
  void visit_tensor(const CheckRegion& region, const ExpectedOutput& expected,
                    const Operands& operands, const Row& row) const {
    const OperandSpec& output = whole(expected.role);
    const int64_t heads = int64_t{region.num_kv_heads} * ratio_, columns = output.columns;
    const float* want = expected.values.data();
    for (int64_t b = 0; b < region.num_batches; ++b) {
      const std::vector<float> got =
          tensor_rows(bench_.device, output, operands.*tensor_of(expected.role),
                      region.batch_begin + b, region.row_begin, region.row_end);
      for (int64_t r = 0; r < region.row_end - region.row_begin; ++r)
        for (int64_t h = 0; h < heads; ++h, want += columns) {
          const int64_t head = region.kv_head_begin * ratio_ + h;
          row(want, &got[static_cast<size_t>((r * output.heads + head) * columns)], columns,
              RowPlace{region.batch_begin + b, region.row_begin + r, head});
        }
    }
  }

  void compare_row_sums(const CheckRegion& region, const ExpectedOutput& expected,
                        const Operands& operands, Comparison* comparison) const {
    const OperandSpec& output = whole(expected.role);
    std::vector<float> got(static_cast<size_t>(output.batch * output.heads * output.rows));
    bench_.device.copy_to_host(got.data(), operands.lse,
                               static_cast<int64_t>(got.size() * sizeof(float)));
    const float* want = expected.values.data();
    for (int64_t b = 0; b < region.num_batches; ++b)
      for (int64_t h = 0; h < int64_t{region.num_kv_heads} * ratio_; ++h)
        for (int64_t row = region.row_begin; row < region.row_end; ++row, ++want) {
          const RowPlace place{region.batch_begin + b, row, region.kv_head_begin * ratio_ + h};
          const int64_t at = (place.batch * output.heads + place.head) * output.rows + row;
          comparison->add_lse(*want, got[static_cast<size_t>(at)], place);
        }
  }

  // Compares the largest logits of a region's heads. Other rows may have larger ones.
  void compare_logits(const CheckRegion& region, const ExpectedOutput& expected,
                      const Operands& operands, Comparison* comparison) const {
    const bool is_whole = region.num_batches == problem_.batch && region.row_begin == 0 &&
                          region.row_end == problem_.seqlen_q;
    std::vector<float> got(static_cast<size_t>(problem_.num_heads_q));
    bench_.device.copy_to_host(got.data(), operands.o_scale.data,
                               static_cast<int64_t>(got.size() * sizeof(float)));
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const int64_t head = int64_t{region.kv_head_begin} * ratio_ + static_cast<int64_t>(i);
      const float want = expected.values[i], found = got[static_cast<size_t>(head)];
      if (is_whole || !(found > want))
        comparison->add_row_number("largest logit", want, found, {region.batch_begin, 0, head});
    }
  }

  void compare(const Expected& expected, const Operands& operands, Comparison* comparison) const {
    for (const ExpectedOutput& output : expected.outputs) {
      if (output.role == Role::kOScale) {
        compare_logits(expected.region, output, operands, comparison);
        continue;
      }
      if (kind_of(output.role) != OperandKind::kTensor) {
        compare_row_sums(expected.region, output, operands, comparison);
        continue;
      }
      visit_tensor(
          expected.region, output, operands,
          [&](const float* want, const float* got, int64_t columns, const RowPlace& place) {
            comparison->add_row(want, got, static_cast<int>(columns), place);
          });
    }
  }

  std::optional<std::string> check_sums(const std::function<void(const Operands&)>& launch) const {
    Operands operands = bench_.inputs.poisoned();
    operands.v = *v_with_mean_;
    launch(operands);
    LossComparison comparison;
    for (const ExpectedOutput& output : expected_sums_.outputs)
      if (output.role == Role::kO)
        visit_tensor(expected_sums_.region, output, operands,
                     [&](const float* want, const float* got, int64_t columns, const RowPlace&) {
                       comparison.add(want, got, static_cast<size_t>(columns));
                     });
    return comparison.wrong(problem_, weights_on(target()));
  }

  const OracleBench bench_;
  const Problem& problem_;
  const int ratio_;
  const OperandList operands_;
  std::vector<Expected> expected_;
  std::optional<OperandView> v_with_mean_;  // set if the problem has 8-bit operands
  Expected expected_sums_;                  // for v_with_mean_
};

class AttentionOracle final : public Oracle {
 public:
  Op op() const override { return Op::kPrefill; }
  std::optional<KernelSpec> reference_spec(const Problem& problem, Target target) const override {
    return check_plan(problem, check_flops_limit(target == Target::kCpu)).spec;
  }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<AttentionExpectation>(bench);
  }
  std::unique_ptr<StandardWay> standard(const Problem& problem, int num_threads) const override {
    if (is_scored(problem)) return nullptr;
    return std::make_unique<StandardAttention>(problem, num_threads);
  }
};

}  // namespace

const Oracle& attention_oracle() {
  static const AttentionOracle instance;
  return instance;
}

}  // namespace attune
