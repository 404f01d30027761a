// SPDX-License-Identifier: Apache-2.0
// Unfused attention for comparison: three passes over one head's score matrix. Threads share the
// heads.
#include "tuner/oracles/standard_attention.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/problem/visibility.hpp"

namespace attune {
namespace {

// Not under ThreadSanitizer. There the resolver that chooses a clone calls into the sanitizer
// before the loader has bound it, which crashed every program at its start.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define ATTUNE_FOR_EACH_CPU \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ATTUNE_FOR_EACH_CPU
#endif

constexpr int kRows = 6;      // rows of the register tile
constexpr int kColumns = 32;  // columns of the register tile: two vectors of 16, or four of 8
// Elements of the inner dimension per pass, so that a panel of B stays in the L2 cache.
constexpr int64_t kDepth = 256;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Scaling by 2^112 moves the exponent's bias and renormalises subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const float magnitude = std::fabs(value);
  if (!(magnitude < 65520.0f))
    return static_cast<uint16_t>(sign | (std::isnan(value) ? 0x7e00u : 0x7c00u));
  // Rounds, to nearest even, to a multiple of the last place that half has at this magnitude.
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const float step = std::ldexp(1.0f, std::max(exponent, -13) - 11);
  const float rounded = std::nearbyint(magnitude / step) * step;
  const uint32_t shifted = std::bit_cast<uint32_t>(rounded * 0x1p-112f) >> 13;
  return static_cast<uint16_t>(sign | shifted);
}

// Loads elements that are `step` apart and multiplies them by a factor; the factor is 1 unless
// elements have 8 bits.
void load_row(Dtype dtype, const void* data, int64_t offset, int64_t step, float factor, int count,
              float* to) {
  if (is_8_bit(dtype)) {
    for (int i = 0; i < count; ++i) to[i] = load_element(dtype, data, offset + i * step) * factor;
    return;
  }
  if (dtype == Dtype::kFp32) {
    std::memcpy(to, static_cast<const float*>(data) + offset,
                static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const uint16_t* from = static_cast<const uint16_t*>(data) + offset;
  if (dtype == Dtype::kBf16) {
    for (int i = 0; i < count; ++i)
      to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
  } else {
    for (int i = 0; i < count; ++i) to[i] = half_to_float(from[i]);
  }
}

float factor_of(const ScaleView& scale, int block, int64_t batch, int64_t head, int64_t row) {
  if (scale.data == nullptr) return 1;
  return scale.data[batch * scale.batch_stride + head / scale.heads_per_scale * scale.head_stride +
                    (block > 0 ? row / block * scale.block_stride : 0)];
}

void store_row(Dtype dtype, const float* from, int count, void* data, int64_t offset) {
  if (dtype == Dtype::kFp32) {
    std::memcpy(static_cast<float*>(data) + offset, from,
                static_cast<size_t>(count) * sizeof(float));
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(data) + offset;
  for (int i = 0; i < count; ++i) {
    if (dtype == Dtype::kBf16) {
      const uint32_t bits = std::bit_cast<uint32_t>(from[i]);
      to[i] = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    } else {
      to[i] = float_to_half(from[i]);
    }
  }
}

// c[rows][columns] (+)= a[rows][depth] * b[depth][columns]. columns and both strides must be
// multiples of kColumns.
ATTUNE_FOR_EACH_CPU void multiply(const float* a, int64_t a_stride, const float* b,
                                  int64_t b_stride, float* c, int64_t c_stride, int64_t rows,
                                  int64_t columns, int64_t depth) {
  for (int64_t d0 = 0; d0 < depth; d0 += kDepth) {
    const int64_t d1 = std::min(depth, d0 + kDepth);
    for (int64_t j = 0; j < columns; j += kColumns) {
      for (int64_t i = 0; i < rows; i += kRows) {
        float sum[kRows][kColumns] = {};
        for (int64_t d = d0; d < d1; ++d)
          for (int r = 0; r < kRows; ++r)
            for (int x = 0; x < kColumns; ++x)
              sum[r][x] += a[(i + r) * a_stride + d] * b[d * b_stride + j + x];
        for (int r = 0; r < kRows; ++r)
          for (int x = 0; x < kColumns; ++x) {
            float* at = &c[(i + r) * c_stride + j + x];
            *at = d0 == 0 ? sum[r][x] : *at + sum[r][x];
          }
      }
    }
  }
}

// Returns exp(x) for x <= 0, as 2^n times a polynomial, with a relative error below 2e-7. Written
// so that the surrounding loop vectorises.
inline float exp_of(float x) {
  const float t = std::max(x * 1.44269504f, -126.0f);
  const float n = std::floor(t + 0.5f);
  const float f = t - n;
  const float p =
      1.0f + f * (0.693147182f +
                  f * (0.240226462f + f * (0.0555032887f +
                                           f * (0.00961808f + f * (0.00133989f + f * 0.000154f)))));
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

// Scales and exponentiates row[first, last) and sets the rest of `width` to 0. Returns the sum and
// the largest scaled score.
ATTUNE_FOR_EACH_CPU void soften(float* row, int64_t first, int64_t last, int64_t width, float scale,
                                float* sum, float* largest) {
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t j = first; j < last; ++j) top = std::max(top, row[j] * scale);
  float total = 0;
  for (int64_t j = first; j < last; ++j) {
    row[j] = exp_of(row[j] * scale - top);
    total += row[j];
  }
  std::fill(row, row + std::min(first, width), 0.0f);
  std::fill(row + std::max<int64_t>(last, 0), row + width, 0.0f);
  *sum = total;
  *largest = top;
}

}  // namespace

StandardAttention::StandardAttention(const Problem& problem, int num_threads)
    : problem_(problem), num_threads_(std::max(1, num_threads)) {}

int64_t StandardAttention::scratch_floats() const {
  const int64_t rows = round_up(problem_.seqlen_q, kRows);
  const int64_t keys = round_up(problem_.seqlen_kv, kColumns);
  const int64_t dv = round_up(problem_.head_dim_v, kColumns);
  return round_up(rows * problem_.head_dim_qk, 16) + problem_.head_dim_qk * keys + keys * dv +
         rows * keys + rows * dv;
}

int64_t StandardAttention::scratch_bytes() const {
  return scratch_floats() * static_cast<int64_t>(sizeof(float)) * num_threads_;
}

void StandardAttention::run(const Operands& args, void* scratch) const {
  const int64_t heads = problem_.batch * problem_.num_heads_q;
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    float* mine = static_cast<float*>(scratch) + thread * scratch_floats();
    for (int64_t i = next++; i < heads; i = next++)
      run_head(args, i / problem_.num_heads_q, i % problem_.num_heads_q, mine);
  };
  std::vector<std::jthread> threads;
  for (int thread = 1; thread < num_threads_; ++thread) threads.emplace_back(work, thread);
  work(0);
}

void StandardAttention::run_head(const Operands& args, int64_t batch, int64_t head,
                                 float* scratch) const {
  const Problem& p = problem_;
  const int64_t rows = round_up(p.seqlen_q, kRows);
  const int64_t keys = round_up(p.seqlen_kv, kColumns);
  const int64_t dv = round_up(p.head_dim_v, kColumns);
  const int64_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
  float* q = scratch;
  float* kt = q + round_up(rows * p.head_dim_qk, 16);  // [head_dim_qk][keys]
  float* v = kt + p.head_dim_qk * keys;                // [keys][dv]
  float* scores = v + keys * dv;                       // [rows][keys]
  float* out = scores + rows * keys;                   // [rows][dv]

  std::fill(q, scores, 0.0f);
  const auto at = [&](const OperandView& view, int64_t row, int64_t h) {
    return batch * view.batch_stride + row * view.row_stride + h * view.head_stride;
  };
  for (int64_t i = 0; i < p.seqlen_q; ++i)
    load_row(p.dtype_q, args.q.data, at(args.q, i, head), 1,
             factor_of(args.q_scale, p.fp8.scale_block_q, batch, head, i), p.head_dim_qk,
             q + i * p.head_dim_qk);
  const bool turned = p.fp8.v_layout == VLayout::kTransposed;
  std::vector<float> key(static_cast<size_t>(p.head_dim_qk));
  for (int64_t j = 0; j < p.seqlen_kv; ++j) {
    const auto factor = [&](const ScaleView& scale) {
      return factor_of(scale, p.fp8.scale_block_kv, batch, kv_head, j);
    };
    load_row(p.dtype_kv, args.k.data, at(args.k, j, kv_head), 1, factor(args.k_scale),
             p.head_dim_qk, key.data());
    for (int d = 0; d < p.head_dim_qk; ++d) kt[d * keys + j] = key[static_cast<size_t>(d)];
    load_row(p.dtype_kv, args.v.data, turned ? at(args.v, 0, kv_head) + j : at(args.v, j, kv_head),
             turned ? args.v.row_stride : 1, factor(args.v_scale), p.head_dim_v, v + j * dv);
  }

  multiply(q, p.head_dim_qk, kt, keys, scores, keys, rows, keys, p.head_dim_qk);
  std::vector<float> sums(static_cast<size_t>(p.seqlen_q));
  for (int64_t i = 0; i < p.seqlen_q; ++i) {
    const KeyInterval<int64_t> seen = visible_keys(p, i);
    const int64_t first = std::min(seen.first, p.seqlen_kv);
    const int64_t last = std::max(first, seen.last + 1);
    float largest = 0;
    float* sum = &sums[static_cast<size_t>(i)];
    soften(scores + i * keys, first, last, keys, p.scale(), sum, &largest);
  }
  multiply(scores, keys, v, dv, out, dv, rows, dv, keys);
  for (int64_t i = 0; i < p.seqlen_q; ++i) {
    const float sum = sums[static_cast<size_t>(i)];
    const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
    for (int64_t d = 0; d < dv; ++d) out[i * dv + d] *= inverse;
    store_row(p.dtype_o, out + i * dv, p.head_dim_v, args.o.data, at(args.o, i, head));
  }
}

}  // namespace attune
