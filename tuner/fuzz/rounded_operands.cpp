// SPDX-License-Identifier: Apache-2.0
// Rounds operands and weights to fewer bits; see attention_case.hpp.
#include "tuner/fuzz/attention_case.hpp"

#include <cmath>

namespace attune::testing {
namespace {

constexpr int kBitsOfFp32 = 24;  // with the bit before the point
constexpr int kBitsOfTf32 = 11;  // the fast mode
// Two numbers of tf32. The second is truncated, and the product of the two second numbers is left
// out.
constexpr int kBitsOfSplit = 21;

int significant_bits(const Problem& p, Arithmetic arithmetic) {
  if (p.dtype_q != Dtype::kFp32 || arithmetic == Arithmetic::kFp32) return kBitsOfFp32;
  return p.fp8.accuracy == Accuracy::kFast    ? kBitsOfTf32
         : p.fp8.accuracy == Accuracy::kSplit ? kBitsOfSplit
                                              : kBitsOfFp32;
}

double round_to_bits(int bits, double value) {
  if (!std::isfinite(value)) return value;
  int exponent = 0;
  const double part = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(part, bits)), exponent - bits);
}

void round_elements(int bits, int64_t batch, int64_t rows, int heads, int dim, HostOperand* x) {
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t row = 0; row < rows; ++row)
      for (int head = 0; head < heads; ++head)
        for (int i = 0; i < dim; ++i)
          x->set(b, row, head, i, round_to_bits(bits, x->at(b, row, head, i)));
}

}  // namespace

double round_weight(const Problem& problem, Arithmetic arithmetic, double value) {
  if (is_8_bit(problem)) return value;
  const double rounded = round_to(problem.dtype_kv, value);
  const int bits = significant_bits(problem, arithmetic);
  return bits == kBitsOfFp32 ? rounded : round_to_bits(bits, rounded);
}

AttentionCase with_rounded_operands(const AttentionCase& test_case, Arithmetic arithmetic) {
  AttentionCase rounded = test_case;
  const Problem& p = test_case.problem;
  const int bits = significant_bits(p, arithmetic);
  if (bits == kBitsOfFp32) return rounded;
  round_elements(bits, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk, &rounded.q);
  round_elements(bits, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk, &rounded.k);
  round_elements(bits, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v, &rounded.v);
  return rounded;
}

}  // namespace attune::testing
