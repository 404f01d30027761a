// SPDX-License-Identifier: Apache-2.0
// Makes inputs, and reads outputs back out of a layout; see attention_case.hpp. For oracle and twin
// see attention_oracle.cpp.
#include "tuner/fuzz/attention_case.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "generator/core/problem/narrow_float.hpp"

namespace attune::testing {
namespace {

float query_factor(Inputs inputs) {
  if (inputs == Inputs::kLogitsTimes16) return 16;
  if (inputs == Inputs::kLogitsTimes64) return 64;
  return 1;
}

// Returns dense values [batch, rows, heads, dim] in the order of memory.
std::vector<float> draw_values(const Extents& x, const std::function<float(int64_t row)>& draw) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(x.batch * x.rows * x.heads * x.dim));
  for (int64_t b = 0; b < x.batch; ++b)
    for (int64_t row = 0; row < x.rows; ++row)
      for (int64_t i = 0; i < x.heads * x.dim; ++i) values.push_back(draw(row));
  return values;
}

// Draws the unit of elements that share one factor: usually a block, if `block` allows it.
Grain draw_grain(std::mt19937_64& random, int64_t block) {
  if (block > 0 && random() % 4 != 0) return Grain::kBlock;
  constexpr Grain kGrains[] = {Grain::kNone, Grain::kTensor, Grain::kHead, Grain::kHead};
  return kGrains[random() % 4];
}

Fit fit_for(Inputs inputs, Dtype dtype) {
  const bool e4m3 = dtype == Dtype::kE4m3;
  const double largest = e4m3 ? kLargestE4m3 : kLargestE5m2;
  if (inputs == Inputs::kSaturated) return {largest, 0.2, 0.6};
  if (inputs == Inputs::kSubnormals) return {e4m3 ? 0x1p-5 : 0x1p-13, 1, 1.5};
  return {largest, 1, 1.5};
}

// Multiplies each unit that shares a factor by its own gain, 1/2 to 2, so that a kernel that uses a
// wrong factor makes a large error.
void vary_sizes(std::mt19937_64& random, const Extents& x, const HostScale& scale,
                std::vector<float>* values) {
  std::uniform_real_distribution<float> exponent(-1, 1);
  std::vector<float> gain(std::max<size_t>(1, scale.values.size()));
  for (float& g : gain) g = std::exp2(exponent(random));
  size_t at = 0;
  for (int64_t b = 0; b < x.batch; ++b)
    for (int64_t row = 0; row < x.rows; ++row)
      for (int64_t head = 0; head < x.heads; ++head)
        for (int64_t i = 0; i < x.dim; ++i)
          (*values)[at++] *=
              scale.values.empty() ? 1 : gain[static_cast<size_t>(scale.index(b, row, head))];
}

struct Narrow {
  int64_t block;
  bool may_vanish;  // a factor may be 0
};

void fill(std::mt19937_64& random, const Extents& x, std::vector<float> values, Inputs inputs,
          const Narrow& narrow, HostOperand* operand, HostScale* scale) {
  if (is_8_bit(operand->dtype)) {
    *scale = make_scale(random, draw_grain(random, narrow.block), x, narrow.block);
    vary_sizes(random, x, *scale, &values);
    quantise(random, x, values, fit_for(inputs, operand->dtype), operand, scale);
    if (narrow.may_vanish && random() % 8 == 0 && !scale->values.empty())
      scale->values[random() % scale->values.size()] = 0;
    return;
  }
  size_t at = 0;
  for (int64_t b = 0; b < x.batch; ++b)
    for (int64_t row = 0; row < x.rows; ++row)
      for (int64_t head = 0; head < x.heads; ++head)
        for (int64_t i = 0; i < x.dim; ++i) operand->set(b, row, head, i, values[at++]);
}

// Draws extents for tensors whose size the call chooses: either as large as their indices may be,
// or so small that indices are clamped.
CaptureSpec with_drawn_extents(std::mt19937_64& random, CaptureSpec spec) {
  constexpr int64_t kMost = 1 << 18;
  int64_t count = 1;
  for (int64_t& extent : spec.extents) {
    if (random() % 2 == 0 || extent > kMost / count)
      extent = 1 + static_cast<int64_t>(random() % 5);
    count *= std::max<int64_t>(extent, 1);
  }
  spec.sample = [](const std::vector<int64_t>&, std::mt19937_64& bits) {
    return static_cast<double>(bits() % 65) / 16 - 2;  // from -2 to 2
  };
  if (spec.type == CaptureType::kBool || spec.type == CaptureType::kUint8)
    spec.sample = [](const std::vector<int64_t>&, std::mt19937_64& bits) {
      return static_cast<double>(bits() % 2);
    };
  return spec;
}

// Draws floats from -2 to 2, or ints from -16 to 16.
ScoreScalar draw_scalar(std::mt19937_64& random, score::Type type, double* value) {
  const int number = static_cast<int>(random() % 33) - 16;
  ScoreScalar scalar{};
  if (type == score::Type::kFloat)
    *value = scalar.f32 = static_cast<float>(number) / 8;
  else
    *value = scalar.i32 = type == score::Type::kBool ? number & 1 : number;
  return scalar;
}

}  // namespace

double round_to(Dtype dtype, double value) {
  std::byte bytes[4];
  store_element(dtype, bytes, 0, static_cast<float>(value));
  return load_element(dtype, bytes, 0);
}

AttentionCase::AttentionCase(const Problem& p, Layout layout, Inputs inputs, uint64_t seed)
    : problem(p), program(score_program(p)) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const Extents q_extents{p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk};
  const Extents k_extents{p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk};
  const Extents v_extents{p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v};
  q = make_operand(p.dtype_q, layout, q_extents);
  k = make_operand(p.dtype_kv, layout, k_extents);
  v = make_operand(p.dtype_kv, layout, v_extents, p.fp8.v_layout == VLayout::kTransposed);
  o = make_operand(p.dtype_o, layout, {p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v});
  const bool negative = inputs == Inputs::kAllNegative;
  const int64_t outlier = inputs == Inputs::kOutlierRow ? p.seqlen_kv / 3 : -1;
  const auto draw = [&] {
    const float value = normal(random);
    return inputs == Inputs::kOutliers && random() % 1000 == 0 ? value + 10 * normal(random)
                                                               : value;
  };
  fill(random, q_extents,
       draw_values(q_extents,
                   [&](int64_t) {
                     return negative ? 3 + std::abs(draw()) : draw() * query_factor(inputs);
                   }),
       inputs, {p.fp8.scale_block_q, true}, &q, &q_scale);
  fill(random, k_extents,
       draw_values(k_extents,
                   [&](int64_t row) {
                     return negative ? -3 - std::abs(draw())
                                     : draw() * (row == outlier ? 30.0F : 1.0F);
                   }),
       inputs, {p.fp8.scale_block_kv, false}, &k, &k_scale);
  const float mean = inputs == Inputs::kMeanOfV ? 1 : 0;
  fill(random, v_extents, draw_values(v_extents, [&](int64_t) { return mean + draw(); }), inputs,
       {p.fp8.scale_block_kv, true}, &v, &v_scale);
  const ScoreCaptures wanted = score_captures(p);
  for (const CaptureSpec& capture : wanted.captures)
    captures.push_back(make_capture(
        random, capture.sized_by_call ? with_drawn_extents(random, capture) : capture));
  for (const score::Scalar& scalar : wanted.scalars)
    scalars.push_back(draw_scalar(random, scalar.type, &loads.scalars.emplace_back()));
  loads.load = [all = captures](int capture, std::span<const int64_t> indices) {
    return all[static_cast<size_t>(capture)].at(indices);
  };
}

double AttentionCase::sink(int64_t head) const {
  if (problem.scores.sinks == ScoreTensor::kNone) return -std::numeric_limits<double>::infinity();
  const auto sinks = static_cast<size_t>(sinks_capture(problem));
  return captures.at(sinks).at(std::array<int64_t, 1>{head});
}

double AttentionCase::scored(double score, int64_t batch, int64_t head, int64_t row,
                             int64_t key) const {
  const Problem& p = problem;
  const score::Point point{.score = score,
                           .batch = static_cast<int32_t>(batch),
                           .head = static_cast<int32_t>(head),
                           .kv_head = static_cast<int32_t>(head / (p.num_heads_q / p.num_heads_kv)),
                           .q_idx = q_position0 + static_cast<int32_t>(row),
                           .kv_idx = kv_position0 + static_cast<int32_t>(key),
                           .seqlen_q = static_cast<int32_t>(p.seqlen_q),
                           .seqlen_kv = static_cast<int32_t>(p.seqlen_kv),
                           .head_dim = p.head_dim_qk};
  return score::evaluate(program, point, loads);
}

ScoreOperands AttentionCase::score_operands(const std::vector<const void*>& addresses) const {
  ScoreOperands operands;
  for (size_t i = 0; i < captures.size(); ++i) operands.add(captures[i].view(addresses[i]));
  std::copy(scalars.begin(), scalars.end(), operands.scalars.begin());
  operands.num_scalars = scalars.size();
  operands.q_position0 = q_position0;
  operands.kv_position0 = kv_position0;
  return operands;
}

std::vector<const void*> AttentionCase::score_data() const {
  std::vector<const void*> addresses;
  for (const HostCapture& capture : captures) addresses.push_back(capture.bytes.data());
  return addresses;
}

std::vector<double> AttentionCase::read_o(const std::vector<std::byte>& bytes,
                                          bool* gaps_intact) const {
  HostOperand got = o;
  got.bytes = bytes;
  std::vector<bool> written(bytes.size() / static_cast<size_t>(dtype_bytes(o.dtype)), false);
  std::vector<double> values;
  for (int64_t b = 0; b < problem.batch; ++b)
    for (int64_t row = 0; row < problem.seqlen_q; ++row)
      for (int64_t head = 0; head < problem.num_heads_q; ++head)
        for (int64_t i = 0; i < problem.head_dim_v; ++i) {
          values.push_back(got.at(b, row, head, i));
          written[static_cast<size_t>(o.index(b, row, head, i))] = true;
        }
  *gaps_intact = true;
  const auto size = static_cast<size_t>(dtype_bytes(o.dtype));
  for (size_t i = 0; i < written.size(); ++i)
    if (!written[i] && std::memcmp(bytes.data() + i * size, o.bytes.data() + i * size, size) != 0)
      *gaps_intact = false;
  return values;
}

}  // namespace attune::testing
