// SPDX-License-Identifier: Apache-2.0
// Inputs, float64 oracle and twin; see attention_case.hpp.
#include "tests/support/attention_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

namespace attune::testing {
namespace {

constexpr float kStale = 1.7F;
constexpr double kInf = std::numeric_limits<double>::infinity();

uint16_t bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

void store(Dtype dtype, std::byte* to, float value) {
  if (dtype == Dtype::kFp32) {
    std::memcpy(to, &value, 4);
  } else if (dtype == Dtype::kBf16) {
    const uint16_t bits = bf16_bits(value);
    std::memcpy(to, &bits, 2);
  } else {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(to, &half, 2);
  }
}

double load(Dtype dtype, const std::byte* from) {
  if (dtype == Dtype::kFp32) {
    float value;
    std::memcpy(&value, from, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  if (dtype == Dtype::kBf16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  return static_cast<double>(std::bit_cast<_Float16>(bits));
}

HostOperand make_operand(Dtype dtype, Layout layout, int64_t batch, int64_t rows, int64_t heads, int64_t dim) {
  HostOperand operand;
  operand.dtype = dtype;
  const int64_t gap = layout == Layout::kPadded ? 16 : 0;  // elements; keeps rows 16-byte aligned
  rows = std::max<int64_t>(rows, 1);                       // no stride is 0, also of an empty operand
  if (layout == Layout::kHeadsFirst) {
    operand.row_stride = dim;
    operand.head_stride = rows * dim;
    operand.batch_stride = heads * rows * dim;
  } else {
    operand.head_stride = dim + gap;
    operand.row_stride = heads * operand.head_stride + gap;
    operand.batch_stride = (rows + (gap > 0 ? 1 : 0)) * operand.row_stride;
  }
  const auto count = static_cast<size_t>(std::max<int64_t>(batch * operand.batch_stride, 1));
  operand.bytes.resize(count * static_cast<size_t>(dtype_bytes(dtype)));
  for (size_t i = 0; i < count; ++i)
    store(dtype, operand.bytes.data() + i * static_cast<size_t>(dtype_bytes(dtype)), std::numeric_limits<float>::quiet_NaN());
  return operand;
}

void fill(HostOperand* operand, int64_t batch, int64_t rows, int64_t heads, int64_t dim, const std::function<float(int64_t row)>& draw) {
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t i = 0; i < dim; ++i) {
          const int64_t at = b * operand->batch_stride + row * operand->row_stride + head * operand->head_stride + i;
          store(operand->dtype, operand->bytes.data() + at * dtype_bytes(operand->dtype), draw(row));
        }
}

bool visible(const Problem& p, int64_t row, int64_t column) {
  const int64_t diagonal = row + (p.mask == Mask::kCausalTopLeft ? 0 : p.seqlen_kv - p.seqlen_q);
  return (p.mask == Mask::kNone || column <= diagonal) && (p.window_left < 0 || column >= diagonal - p.window_left) &&
         (p.window_right < 0 || column <= diagonal + p.window_right);
}

// One head of one operand as a dense [rows, dim] matrix.
template <class Real>
struct Matrix {
  std::vector<Real> values;
  int64_t dim;

  Matrix(const HostOperand& operand, int64_t b, int64_t head, int64_t rows, int64_t width) : dim(width) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i) values.push_back(static_cast<Real>(operand.at(b, row, head, i)));
  }
  const Real* row(int64_t index) const { return values.data() + index * dim; }
};

template <class Real>
struct Head {
  Matrix<Real> q, k, v;
};

// One output row in arithmetic `Real`; `round_p` says how the weights lose precision before they meet V. `stale` is how far the
// reference that weights are taken against lies below the row's maximum (natural log): kernels rescale lazily, so that even the
// largest weight is no power of two and is rounded.
template <class Real>
double attend_row(const Problem& p, const Head<Real>& head, int64_t row, const std::function<Real(Real)>& round_p, Real stale, std::vector<Real>* o) {
  std::vector<Real> scores(static_cast<size_t>(p.seqlen_kv), -std::numeric_limits<Real>::infinity());
  Real highest = -std::numeric_limits<Real>::infinity();
  for (int64_t j = 0; j < p.seqlen_kv; ++j) {
    if (!visible(p, row, j)) continue;
    Real dot = 0;
    for (int64_t i = 0; i < p.head_dim_qk; ++i) dot += head.q.row(row)[i] * head.k.row(j)[i];
    scores[static_cast<size_t>(j)] = dot * static_cast<Real>(p.scale());
    highest = std::max(highest, scores[static_cast<size_t>(j)]);
  }
  o->assign(static_cast<size_t>(p.head_dim_v), 0);
  if (highest == -std::numeric_limits<Real>::infinity()) return -kInf;
  Real sum = 0;
  for (int64_t j = 0; j < p.seqlen_kv; ++j) {
    if (!visible(p, row, j)) continue;
    const Real weight = std::exp(scores[static_cast<size_t>(j)] - highest + stale);
    sum += weight;
    const Real rounded = round_p(weight);
    for (int64_t i = 0; i < p.head_dim_v; ++i) (*o)[static_cast<size_t>(i)] += rounded * head.v.row(j)[i];
  }
  for (Real& value : *o) value /= sum;
  return static_cast<double>(highest - stale) + std::log(static_cast<double>(sum));
}

template <class Real>
AttentionResult attend(const AttentionCase& c, const std::function<Real(Real)>& round_p, Real stale, const std::function<double(double)>& round_o) {
  const Problem& p = c.problem;
  AttentionResult result;
  result.o.resize(static_cast<size_t>(p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_v));
  result.lse.resize(static_cast<size_t>(p.batch * p.num_heads_q * p.seqlen_q));
  std::vector<Real> o;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t head = 0; head < p.num_heads_q; ++head) {
      const int64_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
      const Head<Real> operands{{c.q, b, head, p.seqlen_q, p.head_dim_qk}, {c.k, b, kv_head, p.seqlen_kv, p.head_dim_qk}, {c.v, b, kv_head, p.seqlen_kv, p.head_dim_v}};
      for (int64_t row = 0; row < p.seqlen_q; ++row) {
        result.lse[static_cast<size_t>((b * p.num_heads_q + head) * p.seqlen_q + row)] = attend_row<Real>(p, operands, row, round_p, stale, &o);
        const int64_t base = ((b * p.seqlen_q + row) * p.num_heads_q + head) * p.head_dim_v;
        for (int64_t i = 0; i < p.head_dim_v; ++i) result.o[static_cast<size_t>(base + i)] = round_o(static_cast<double>(o[static_cast<size_t>(i)]));
      }
    }
  return result;
}

float query_factor(Inputs inputs) {
  if (inputs == Inputs::kLogitsTimes16) return 16;
  if (inputs == Inputs::kLogitsTimes64) return 64;
  return 1;
}

}  // namespace

double round_to(Dtype dtype, double value) {
  std::byte bytes[4];
  store(dtype, bytes, static_cast<float>(value));
  return load(dtype, bytes);
}

double HostOperand::at(int64_t b, int64_t row, int64_t head, int64_t i) const {
  return load(dtype, bytes.data() + (b * batch_stride + row * row_stride + head * head_stride + i) * dtype_bytes(dtype));
}

AttentionCase::AttentionCase(const Problem& p, Layout layout, Inputs inputs, uint64_t seed) : problem(p) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  q = make_operand(p.dtype_q, layout, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk);
  k = make_operand(p.dtype_kv, layout, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk);
  v = make_operand(p.dtype_kv, layout, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v);
  o = make_operand(p.dtype_o, layout, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v);
  const bool negative = inputs == Inputs::kAllNegative;
  const int64_t outlier = inputs == Inputs::kOutlierRow ? p.seqlen_kv / 3 : -1;
  fill(&q, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk,
       [&](int64_t) { return negative ? 3 + std::abs(normal(random)) : normal(random) * query_factor(inputs); });
  fill(&k, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk,
       [&](int64_t row) { return negative ? -3 - std::abs(normal(random)) : normal(random) * (row == outlier ? 30.0F : 1.0F); });
  fill(&v, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v, [&](int64_t) { return normal(random); });
}

AttentionResult AttentionCase::oracle() const {
  return attend<double>(*this, [](double x) { return x; }, 0.0, [](double x) { return x; });
}

AttentionResult AttentionCase::twin() const {
  const Dtype kv = problem.dtype_kv;
  const Dtype out = problem.dtype_o;
  return attend<float>(*this, [kv](float x) { return static_cast<float>(round_to(kv, x)); }, kStale, [out](double x) { return round_to(out, x); });
}

std::vector<double> AttentionCase::read_o(const std::vector<std::byte>& bytes, bool* gaps_intact) const {
  HostOperand got = o;
  got.bytes = bytes;
  std::vector<bool> written(bytes.size() / static_cast<size_t>(dtype_bytes(o.dtype)), false);
  std::vector<double> values;
  for (int64_t b = 0; b < problem.batch; ++b)
    for (int64_t row = 0; row < problem.seqlen_q; ++row)
      for (int64_t head = 0; head < problem.num_heads_q; ++head)
        for (int64_t i = 0; i < problem.head_dim_v; ++i) {
          values.push_back(got.at(b, row, head, i));
          written[static_cast<size_t>(b * o.batch_stride + row * o.row_stride + head * o.head_stride + i)] = true;
        }
  *gaps_intact = true;
  const auto size = static_cast<size_t>(dtype_bytes(o.dtype));
  for (size_t i = 0; i < written.size(); ++i)
    if (!written[i] && std::memcmp(bytes.data() + i * size, o.bytes.data() + i * size, size) != 0) *gaps_intact = false;
  return values;
}

Errors compare(const AttentionResult& got, const AttentionResult& oracle) {
  Errors errors;
  double sum = 0;
  for (size_t i = 0; i < oracle.o.size(); ++i) {
    const double error = std::abs(got.o[i] - oracle.o[i]);
    if (!std::isfinite(error)) errors.finite = false;
    errors.max = std::max(errors.max, error);
    sum += error;
  }
  errors.mean = oracle.o.empty() ? 0 : sum / static_cast<double>(oracle.o.size());
  for (size_t i = 0; i < oracle.lse.size() && i < got.lse.size(); ++i) {
    if (oracle.lse[i] == -kInf || !std::isfinite(got.lse[i])) {
      errors.finite = errors.finite && got.lse[i] == oracle.lse[i];
      continue;
    }
    errors.lse_max = std::max(errors.lse_max, std::abs(got.lse[i] - oracle.lse[i]) / std::max(1.0, std::abs(oracle.lse[i])));
  }
  return errors;
}

std::string verdict(const AttentionCase& test_case, const AttentionResult& got) {
  const AttentionResult oracle = test_case.oracle();
  const Errors kernel = compare(got, oracle);
  const Errors twin = compare(test_case.twin(), oracle);
  // In fp32 twin and kernel err alike, by the order of their sums, so that two samples of one noise are compared.
  const double slack = test_case.problem.dtype_q == Dtype::kFp32 ? 2 : 1;
  if (!kernel.finite) return "NaN, infinity or a wrong empty row in O or LSE";
  if (kernel.max > slack * 2 * twin.max + 1e-5)
    return fmt::format("max error {:.3g} is above {} x the twin's {:.3g} + 1e-5", kernel.max, slack * 2, twin.max);
  if (kernel.mean > slack * 1.2 * twin.mean + 1e-6)
    return fmt::format("mean error {:.3g} is above {} x the twin's {:.3g} + 1e-6", kernel.mean, slack * 1.2, twin.mean);
  if (kernel.lse_max > 1e-4) return fmt::format("LSE error {:.3g} is above 1e-4", kernel.lse_max);
  return {};
}

}  // namespace attune::testing
