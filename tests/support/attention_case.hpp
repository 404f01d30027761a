// SPDX-License-Identifier: Apache-2.0
// One attention call as tests see it: random host operands in some layout, a float64 oracle, and the low-precision twin that
// rounds where the kernels round (P to the operands' dtype before P.V, O at the end). Independent of all kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/core/problem.hpp"

namespace attune::testing {

enum class Layout { kContiguous, kHeadsFirst, kPadded };  // [B,S,H,D], [B,H,S,D], rows with gaps full of NaN
enum class Inputs {
  kNormal,           // N(0,1)
  kLogitsTimes16,    // q scaled, so that softmax is nearly one-hot
  kLogitsTimes64,
  kAllNegative,      // every score far below zero
  kOutlierRow,       // one key 30 times larger than the others
};

// Element (b, row, head, i) stands at b * batch_stride + row * row_stride + head * head_stride + i.
struct HostOperand {
  std::vector<std::byte> bytes;
  Dtype dtype = Dtype::kFp32;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  double at(int64_t b, int64_t row, int64_t head, int64_t i) const;
};

struct AttentionResult {
  std::vector<double> o;    // [batch, seqlen_q, num_heads_q, head_dim_v]
  std::vector<double> lse;  // [batch, num_heads_q, seqlen_q]
};

struct AttentionCase {
  Problem problem;
  HostOperand q, k, v, o;  // o: NaN everywhere

  AttentionCase(const Problem& problem, Layout layout, Inputs inputs, uint64_t seed);
  AttentionResult oracle() const;  // float64
  AttentionResult twin() const;    // fp32 with the kernels' roundings
  // Reads o back out of its layout. `gaps_intact` is false when a byte outside the elements was written.
  std::vector<double> read_o(const std::vector<std::byte>& bytes, bool* gaps_intact) const;
};

struct Errors {
  double max = 0, mean = 0;
  double lse_max = 0;
  bool finite = true;       // no NaN where the oracle has none; -inf LSE exactly where the oracle has it
};

Errors compare(const AttentionResult& got, const AttentionResult& oracle);
// Empty when `got` keeps the rule (max <= 2 x twin + 1e-5, mean <= 1.2 x twin + 1e-6, both doubled for fp32; LSE within 1e-4
// relative), else what is broken.
std::string verdict(const AttentionCase& test_case, const AttentionResult& got);

double round_to(Dtype dtype, double value);

}  // namespace attune::testing
