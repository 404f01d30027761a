// SPDX-License-Identifier: Apache-2.0
// The float64 oracle with the allowance of 8-bit kernels, and the low-precision twin; see
// attention_case.hpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "generator/core/problem/narrow_float.hpp"
#include "generator/score/features/score_feature.hpp"
#include "tuner/fuzz/attention_case.hpp"
#include "tuner/oracles/host_scores.hpp"

namespace attune::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLn2 = 0.69314718055994531;

bool visible(const Problem& p, int64_t row, int64_t column) {
  const int64_t diagonal = row + (p.mask == Mask::kCausalTopLeft ? 0 : p.seqlen_kv - p.seqlen_q);
  return (p.mask == Mask::kNone || column <= diagonal) &&
         (p.window_left < 0 || column >= diagonal - p.window_left) &&
         (p.window_right < 0 || column <= diagonal + p.window_right);
}

// One head of one operand: a dense [rows, dim] matrix of values.
template <class Real>
struct Matrix {
  std::vector<Real> values;
  int64_t dim;

  Matrix(const HostOperand& operand, const HostScale& scale, int64_t b, int64_t head, int64_t rows,
         int64_t width)
      : dim(width) {
    values.reserve(static_cast<size_t>(rows * width));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i)
        values.push_back(static_cast<Real>(operand.at(b, row, head, i) * scale.at(b, row, head)));
  }
  const Real* row(int64_t index) const { return values.data() + index * dim; }
};

constexpr int64_t kPanel = 8;

template <class Real>
struct Head {
  Matrix<Real> q, k, v;
  std::vector<double> v_factors;  // one per key
  std::vector<Real> panels;       // K, [panel, dim, kPanel keys]; the last panel is padded
};

template <class Real>
std::vector<Real> in_panels(const Matrix<Real>& k, int64_t keys) {
  std::vector<Real> panels(static_cast<size_t>((keys + kPanel - 1) / kPanel * kPanel * k.dim));
  for (int64_t j = 0; j < keys; ++j)
    for (int64_t i = 0; i < k.dim; ++i)
      panels[static_cast<size_t>((j / kPanel * k.dim + i) * kPanel + j % kPanel)] = k.row(j)[i];
  return panels;
}

// Sets dots[j] to the product of q and each key j of a panel. Each sum adds its columns in order.
// The sums of a panel are computed side by side.
template <class Real>
void panel_products(const Real* q, const Real* panel, int64_t dim, Real* dots) {
  using Few [[gnu::vector_size(16)]] = Real;  // what registers hold on every CPU
  constexpr size_t kFew = kPanel * sizeof(Real) / sizeof(Few);
  Few sums[kFew] = {}, keys[kFew];
  for (int64_t i = 0; i < dim; ++i) {
    std::memcpy(keys, panel + i * kPanel, sizeof keys);
    for (size_t j = 0; j < kFew; ++j) sums[j] += q[i] * keys[j];
  }
  std::memcpy(dots, sums, sizeof sums);
}

// One row: its visible keys, their scores, and the weights exp(score - reference) that multiply V,
// also before they are rounded.
template <class Real>
struct Row {
  std::vector<int64_t> keys;
  std::vector<Real> scores, weights, exact;
  Real highest = -std::numeric_limits<Real>::infinity();
  Real reference = 0;
  Real sum = 0;  // sum of the weights before rounding
};

// Sets row.reference and row.weights from the row's scores.
template <class Real>
using Weigh = std::function<void(const Head<Real>&, Row<Real>*)>;

struct RowPlace {
  int64_t batch, head, row;
};

// Returns the error that fp32 arithmetic may add to a score; it differs per key. A caller's program
// may be off by some units in the last place, and a built-in step by the error of its functions.
float program_noise(const Problem& p, const RowPlace& place, int64_t key) {
  const float units = p.scores.score_mod ? 2e-6F : 6e-7F;
  const auto mixed =
      static_cast<uint32_t>(place.row * 31 + key * 17 + place.head * 7 + place.batch);
  return units * (static_cast<float>(mixed * 2654435761U >> 16) / 32768.0F - 1);
}

template <class Real>
Row<Real> score_row(const AttentionCase& c, const Head<Real>& head, const RowPlace& place) {
  const Problem& p = c.problem;
  const int64_t index = place.row;
  const bool has_program = is_scored(p);
  const auto scale = static_cast<Real>(p.scale());
  Row<Real> row;
  Real dots[kPanel];
  int64_t panel = -1;
  for (int64_t j = 0; j < p.seqlen_kv; ++j) {
    if (!visible(p, index, j)) continue;
    if (j / kPanel != panel) {
      panel = j / kPanel;
      panel_products(head.q.row(index),
                     &head.panels[static_cast<size_t>(panel * kPanel * p.head_dim_qk)],
                     p.head_dim_qk, dots);
    }
    Real dot = dots[j % kPanel] * scale;
    row.keys.push_back(j);
    if (has_program)
      dot =
          static_cast<Real>(c.scored(static_cast<double>(dot), place.batch, place.head, index, j));
    if constexpr (std::is_same_v<Real, float>)
      if (bends_scores(p) && std::isfinite(dot))
        dot += (1 + std::abs(dot)) * program_noise(p, place, j);
    row.scores.push_back(dot);
    row.highest = std::max(row.highest, row.scores.back());
  }
  return row;
}

// Computes weights relative to a reference that is `stale` below the maximum, and rounds each
// weight with `round`.
template <class Real>
void weigh_each(Real stale, const std::function<Real(Real)>& round, Row<Real>* row) {
  row->reference = row->highest - stale;
  for (const Real score : row->scores) {
    row->exact.push_back(std::exp(score - row->reference));
    row->weights.push_back(round(row->exact.back()));
  }
}

constexpr double kLeastRatio = 0x1p-40;

// Returns the factors of V for a row's keys, relative to the largest. 8-bit kernels multiply P by
// these ratios.
template <class Real>
std::vector<double> factor_ratios(const Head<Real>& head, const Row<Real>& row) {
  double largest = 0;
  for (const int64_t key : row.keys)
    largest = std::max(largest, head.v_factors[static_cast<size_t>(key)]);
  std::vector<double> ratios;
  for (const int64_t key : row.keys)
    ratios.push_back(largest > 0
                         ? std::max(head.v_factors[static_cast<size_t>(key)] / largest, kLeastRatio)
                         : 1.0);
  return ratios;
}

// Computes weights in e4m3. The ratios of V's factors are multiplied in before the rounding and
// divided out afterwards. The reference is the running maximum of these products after each block
// of keys, minus `lag` (log2). The largest P is 2^(offset + lag).
void weigh_in_e4m3(double lag, int offset, const Head<float>& head, Row<float>* row) {
  constexpr size_t kBlock = 64;
  const std::vector<double> ratios = factor_ratios(head, *row);
  const double unit = std::ldexp(1.0, offset);
  row->reference = row->highest;
  double running = -kInf;
  for (size_t begin = 0; begin < row->scores.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, row->scores.size());
    for (size_t j = begin; j < end; ++j)
      running = std::max(running, row->scores[j] + std::log(ratios[j]));
    const double reference = running == -kInf ? 0 : running - lag * kLn2;
    for (size_t j = begin; j < end; ++j) {
      const double narrow =
          round_to(Dtype::kE4m3, std::exp(row->scores[j] - reference) * ratios[j] * unit);
      row->weights.push_back(
          static_cast<float>(narrow / unit / ratios[j] * std::exp(reference - row->reference)));
      row->exact.push_back(std::exp(row->scores[j] - row->reference));
    }
  }
}

// True if the row has no visible key, or all its scores are -inf.
template <class Real>
bool sees_nothing(const Row<Real>& row) {
  return std::all_of(row.scores.begin(), row.scores.end(), [](Real s) { return s == -kInf; });
}

// Adds to each element of o the sum of weights times values, key after key; four keys a round.
template <class Real>
void add_values(const Matrix<Real>& v, const std::vector<int64_t>& keys,
                const std::vector<Real>& weights, std::vector<Real>* o) {
  size_t j = 0;
  for (; j + 4 <= keys.size(); j += 4) {
    const Real *v0 = v.row(keys[j]), *v1 = v.row(keys[j + 1]), *v2 = v.row(keys[j + 2]),
               *v3 = v.row(keys[j + 3]);
    const Real w0 = weights[j], w1 = weights[j + 1], w2 = weights[j + 2], w3 = weights[j + 3];
    Real* const sums = o->data();
    for (size_t i = 0; i < o->size(); ++i)
      sums[i] = sums[i] + w0 * v0[i] + w1 * v1[i] + w2 * v2[i] + w3 * v3[i];
  }
  for (; j < keys.size(); ++j)
    for (size_t i = 0; i < o->size(); ++i) (*o)[i] += weights[j] * v.row(keys[j])[i];
}

// Computes a row of O and returns its log-sum-exp. O is 0 for a row that sees nothing, and NaN for
// a row with a score of NaN or +inf. `sink` is a logit that joins the denominator; -inf: none.
template <class Real>
double attend_row(const Problem& p, const Head<Real>& head, const Weigh<Real>& weigh, double sink,
                  const RowPlace& place, Row<Real>* row, std::vector<Real>* o) {
  o->assign(static_cast<size_t>(p.head_dim_v), 0);
  if (sees_nothing(*row)) return sink;
  weigh(head, row);
  std::vector<Real> meets;
  for (size_t j = 0; j < row->keys.size(); ++j) {
    row->sum += row->exact[j];
    meets.push_back(row->weights[j] * static_cast<Real>(kept_of(p, place.batch, place.head,
                                                                place.row, row->keys[j])));
  }
  add_values(head.v, row->keys, meets, o);
  row->sum += static_cast<Real>(std::exp(sink - static_cast<double>(row->reference)));
  for (Real& value : *o) value /= row->sum;
  return static_cast<double>(row->reference) + std::log(static_cast<double>(row->sum));
}

// The indices of a row's results.
struct Place {
  int64_t query;
  size_t o, lse;
};

using Visit = std::function<void(const Head<double>&, const Row<double>&, const Place&,
                                 const std::vector<double>& o)>;

template <class Real>
AttentionResult attend(const AttentionCase& c, const Weigh<Real>& weigh,
                       const std::function<double(double)>& round_o, const Visit& visit) {
  const Problem& p = c.problem;
  AttentionResult result;
  result.o.resize(static_cast<size_t>(p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_v));
  const auto rows = static_cast<size_t>(p.batch * p.num_heads_q * p.seqlen_q);
  result.lse.resize(rows + static_cast<size_t>(p.max_logits ? p.num_heads_q : 0), -kInf);
  std::vector<Real> o;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t head = 0; head < p.num_heads_q; ++head) {
      const int64_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
      Head<Real> operands{{c.q, c.q_scale, b, head, p.seqlen_q, p.head_dim_qk},
                          {c.k, c.k_scale, b, kv_head, p.seqlen_kv, p.head_dim_qk},
                          {c.v, c.v_scale, b, kv_head, p.seqlen_kv, p.head_dim_v},
                          {},
                          {}};
      operands.panels = in_panels(operands.k, p.seqlen_kv);
      for (int64_t key = 0; key < p.seqlen_kv; ++key)
        operands.v_factors.push_back(c.v_scale.at(b, key, kv_head));
      for (int64_t query = 0; query < p.seqlen_q; ++query) {
        const RowPlace at{b, head, query};
        Row<Real> row = score_row<Real>(c, operands, at);
        const Place place{
            query,
            static_cast<size_t>(((b * p.seqlen_q + query) * p.num_heads_q + head) * p.head_dim_v),
            static_cast<size_t>((b * p.num_heads_q + head) * p.seqlen_q + query)};
        if (p.max_logits) {
          double& largest = result.lse[rows + static_cast<size_t>(head)];
          largest = std::max(largest, static_cast<double>(row.highest));
        }
        result.lse[place.lse] = attend_row<Real>(p, operands, weigh, c.sink(head), at, &row, &o);
        for (size_t i = 0; i < o.size(); ++i)
          result.o[place.o + i] = round_o(static_cast<double>(o[i]));
        if constexpr (std::is_same_v<Real, double>)
          if (visit) visit(operands, row, place, o);
      }
    }
  return result;
}

// ---- the allowance of kernels with 8-bit products

constexpr double kHalfStep = 0x1p-4;    // half a step of e4m3, relative
constexpr double kLeastStep = 0x1p-10;  // half of e4m3's smallest number: a smaller P becomes 0
// The tensor cores cut each addend off at this part of the largest one.
constexpr double kAccumulator = 0x1p-13;
constexpr double kProducts = 32;       // addends of one instruction
constexpr double kFlushedKeys = 1024;  // the accurate mode empties the accumulator after as many

// Returns log2 of a row's largest P at the moment when the row's maximum is computed.
int largest_p_log2(const Problem& p) { return p.fp8.accuracy == Accuracy::kFast ? 4 : 6; }

// Returns the effective number of instructions. The accumulator grows during the sum, so an
// instruction counts half on average.
double instructions(double count) { return (1 + count / kProducts) / 2; }

// Returns the error of truncation for a sum of `count` products with this result and this sum of
// magnitudes, if all addends have one sign: then all are cut in the same direction. (This function
// and the next were compared with an H200.)
double one_sided(double result, double magnitudes, double count) {
  if (magnitudes == 0) return 0;
  return kAccumulator * instructions(count) * kProducts / 2 * result * result / magnitudes;
}

// Returns the error of truncation for addends of both signs: one_sided plus a random part.
double truncation(double result, double magnitudes, double count) {
  if (magnitudes == 0) return 0;
  const double at_random = std::abs(result) + 3 * magnitudes / std::sqrt(count);
  return one_sided(result, magnitudes, count) + kAccumulator * instructions(count) * 4 * at_random;
}

// Returns the largest error of each key's score; 0 for a score of -inf.
std::vector<double> score_errors(const Problem& p, const Head<double>& head, const Row<double>& row,
                                 int64_t query) {
  std::vector<double> errors;
  for (size_t j = 0; j < row.keys.size(); ++j) {
    if (row.scores[j] == -kInf) {
      errors.push_back(0);
      continue;
    }
    double magnitudes = 0;
    for (int64_t i = 0; i < p.head_dim_qk; ++i)
      magnitudes += std::abs(head.q.row(query)[i] * head.k.row(row.keys[j])[i]);
    errors.push_back(truncation(row.scores[j], magnitudes * p.scale(), p.head_dim_qk));
  }
  return errors;
}

// Returns the weight below which P rounds to 0 or to one of e4m3's smallest numbers. Weights are
// taken after the multiplication by the ratios.
double least_meeting(const Problem& p, const Row<double>& row, const std::vector<double>& ratios) {
  double largest = 0;
  for (size_t j = 0; j < ratios.size(); ++j)
    largest = std::max(largest, row.weights[j] * ratios[j]);
  return std::ldexp(kLeastStep, -largest_p_log2(p)) * largest;
}

// Sums over the keys of one row, for one element of O.
struct Sums {
  double magnitudes = 0;  // of p v
  double squares = 0;     // of p v
  double lost = 0;        // p v of keys whose P is too small for e4m3
  double moved = 0;       // squares of the changes that errors of the scores cause
};

Sums sums_of(const Head<double>& head, const Row<double>& row, const std::vector<double>& ratios,
             const std::vector<double>& errors, double least, int64_t i, double o) {
  Sums sums;
  for (size_t j = 0; j < row.keys.size(); ++j) {
    const double p = row.weights[j] / row.sum, v = head.v.row(row.keys[j])[i];
    sums.magnitudes += p * std::abs(v);
    sums.squares += p * p * v * v;
    sums.lost += std::min(p, least / ratios[j] / row.sum) * std::abs(v);
    sums.moved += std::pow(p * errors[j] * (v - o), 2);
  }
  return sums;
}

// Returns the index of the key whose weight times factor is more than half of the row's sum; -1 if
// there is none, or if its P is a power of two. O inherits the rounding error of that one P, and
// the twin's error does not show how large it is. In the accurate mode, P is a power of two if the
// key is also large among the plain weights.
int64_t dominant_key(const Problem& p, const Row<double>& row, const std::vector<double>& ratios) {
  double sum = 0, most = 0;
  int64_t largest = -1;
  for (size_t j = 0; j < ratios.size(); ++j) {
    const double meets = row.weights[j] * ratios[j];
    sum += meets;
    if (meets <= most) continue;
    most = meets;
    largest = static_cast<int64_t>(j);
  }
  const bool exact = p.fp8.accuracy == Accuracy::kAccurate && most > row.sum / 8;
  return exact || most < sum / 2 ? -1 : largest;
}

// True if all weights of a block round alike, because all scores are almost equal (for example with
// a factor of 0 in q). O inherits that error.
bool weights_are_alike(const Row<double>& row) {
  const auto [least, most] = std::minmax_element(row.scores.begin(), row.scores.end());
  return *most - *least < kHalfStep / 2;
}

double unit_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? 0x1p-8 : dtype == Dtype::kFp16 ? 0x1p-11 : 0x1p-24;
}

// Adds the allowance of one row. The rounding errors of P are independent from key to key (2.5 half
// steps are 6 standard deviations) or the same for all keys, but never more than half a step per
// key.
void allow_row(const Problem& p, const Head<double>& head, const Row<double>& row,
               const Place& place, const std::vector<double>& o, Allowance* allowance) {
  if (!(row.sum > 0)) return;  // sees nothing, or is NaN
  const std::vector<double> errors = score_errors(p, head, row, place.query);
  double square = 0, lse_error = 0;
  for (size_t j = 0; j < row.keys.size(); ++j) {
    square += std::pow(row.weights[j] / row.sum, 2);
    lse_error += row.weights[j] / row.sum * errors[j];
  }
  const std::vector<double> ratios = factor_ratios(head, row);
  const double least = least_meeting(p, row, ratios);
  const int64_t dominant = dominant_key(p, row, ratios);
  const bool alike = weights_are_alike(row);
  const double added =
      p.fp8.accuracy == Accuracy::kFast ? 1 / square : std::min(1 / square, kFlushedKeys);
  for (size_t i = 0; i < o.size(); ++i) {
    const Sums sums = sums_of(head, row, ratios, errors, least, static_cast<int64_t>(i), o[i]);
    const double rounding = std::min(kHalfStep * sums.magnitudes,
                                     kHalfStep * (2.5 * std::sqrt(sums.squares) + std::abs(o[i])));
    const double noise = 1.5 * std::sqrt(sums.moved) + truncation(o[i], sums.magnitudes, added);
    allowance->o[place.o + i] += rounding + sums.lost + noise + unit_of(p.dtype_o) * std::abs(o[i]);
    const double inherited =
        alike          ? kHalfStep * std::abs(o[i])
        : dominant < 0 ? 0
                       : kHalfStep * row.weights[static_cast<size_t>(dominant)] / row.sum *
                             std::abs(head.v.row(row.keys[static_cast<size_t>(dominant)])[i]);
    // the same in all elements, so in the mean
    const double lost = one_sided(o[i], sums.magnitudes, added);
    allowance->mean_noise +=
        (lost + (noise - lost) / 3 + inherited) / static_cast<double>(allowance->o.size());
  }
  allowance->lse[place.lse] += lse_error;
}

}  // namespace

AttentionResult AttentionCase::oracle(Allowance* allowance) const {
  const Problem& p = problem;
  Visit visit;
  if (allowance != nullptr) {
    allowance->o.assign(static_cast<size_t>(p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_v),
                        1e-5);
    allowance->lse.assign(static_cast<size_t>(p.batch * p.num_heads_q * p.seqlen_q), 1e-5);
    visit = [&](const Head<double>& head, const Row<double>& row, const Place& place,
                const std::vector<double>& output) {
      allow_row(p, head, row, place, output, allowance);
    };
  }
  const Weigh<double> exact = [](const Head<double>&, Row<double>* row) {
    weigh_each<double>(
        0, [](double x) { return x; }, row);
  };
  return attend<double>(
      *this, exact, [](double x) { return x; }, visit);
}

AttentionResult AttentionCase::twin(Arithmetic arithmetic) const {
  // Kernels rescale lazily. So even the largest weight is not a power of two, and it is rounded.
  // The rounding differs per row: the distance of the reference below the maximum steps through a
  // binade and never repeats.
  constexpr double kGolden = 0.6180339887498949, kLn2 = 0.6931471805599453;
  // 2^2.0875 = 4.25, so that the largest weight of the fast mode is midway between two e4m3
  // numbers.
  constexpr double kLag = 2.0875;
  const Dtype out = problem.dtype_o;
  Weigh<float> weigh;
  if (is_8_bit(problem) && arithmetic == Arithmetic::kKernel) {
    const double lag = problem.fp8.accuracy == Accuracy::kFast ? kLag : 0;
    const int offset = largest_p_log2(problem);
    weigh = [lag, offset](const Head<float>& head, Row<float>* row) {
      weigh_in_e4m3(lag, offset, head, row);
    };
  } else {
    const auto round = [this, arithmetic](float x) {
      return static_cast<float>(round_weight(problem, arithmetic, x));
    };
    weigh = [round, turn = 0.5](const Head<float>&, Row<float>* row) mutable {
      turn = std::fmod(turn + kGolden, 1);
      weigh_each<float>(static_cast<float>(turn * kLn2), round, row);
    };
  }
  return attend<float>(
      with_rounded_operands(*this, arithmetic), weigh, [out](double x) { return round_to(out, x); },
      nullptr);
}

}  // namespace attune::testing
