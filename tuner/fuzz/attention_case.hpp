// SPDX-License-Identifier: Apache-2.0
// One attention call as tests and `attune check --fuzz` see it: random host operands in some layout, a float64 oracle, and
// the low-precision twin that rounds where the kernels round (P to the operands' dtype before P.V,
// O at the end). Independent of all kernels. 8-bit operands come with random factors; their oracle
// sees elements times factors. See attention_verdict.cpp for the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/core/problem.hpp"
#include "generator/core/score/evaluate.hpp"
#include "generator/core/score_operands.hpp"
#include "tuner/fuzz/host_capture.hpp"
#include "tuner/fuzz/host_operand.hpp"

namespace attune::testing {

enum class Inputs {
  kNormal,         // N(0,1)
  kLogitsTimes16,  // q scaled, so that softmax is nearly one-hot
  kLogitsTimes64,
  kAllNegative,  // every score far below zero
  kOutlierRow,   // one key 30 times larger than the others
  kOutliers,     // N(0,1), and N(0,100) added to one element of 1000
  kMeanOfV,      // N(0,1), V with a mean of 1: sums of one sign
  kSaturated,  // 8 bits: the largest values lie beyond the type's largest. Otherwise N(0,1), as the
               // next one
  kSubnormals,  // 8 bits: most elements are below the type's smallest normal number
};

struct AttentionResult {
  std::vector<double> o;    // [batch, seqlen_q, num_heads_q, head_dim_v]
  std::vector<double> lse;  // [batch, num_heads_q, seqlen_q]
};

// How much a kernel of 8-bit products may err, from the rounding of P and from the short
// accumulator of the tensor cores.
struct Allowance {
  std::vector<double> o, lse;  // for each element
  double mean_noise = 0;       // expected mean error of O that the twin's says nothing of
};

// In which arithmetic products and sums are taken.
enum class Arithmetic {
  kKernel,  // as the kernels of the problem's dtypes do: P in the operands' dtype
  kFp32,  // references and CPU kernels: nothing but O is rounded. Differs for 8 bits, and for fp32 in other modes than accurate
};

struct AttentionCase {
  Problem problem;
  HostOperand q, k, v, o;  // o: NaN everywhere
  HostScale q_scale, k_scale, v_scale;
  score::Program program;             // score_program(problem)
  std::vector<HostCapture> captures;  // in the order of captures_of(problem)
  score::Loads loads;                 // of them, and the scalars
  std::vector<ScoreScalar> scalars;   // in the order of scalars_of(problem)
  // Where row 0 and key 0 stand; to be set before anything is asked.
  int q_position0 = 0, kv_position0 = 0;

  // 8 bits: which factors there are is drawn too, of those that the problem's scale blocks admit;
  // now and then one is 0.
  AttentionCase(const Problem& problem, Layout layout, Inputs inputs, uint64_t seed);
  // With the captures at these addresses, on the host or on a device.
  ScoreOperands score_operands(const std::vector<const void*>& addresses) const;
  std::vector<const void*> score_data() const;  // on the host
  // What the problem's score program makes of a scaled score.
  double scored(double score, int64_t batch, int64_t head, int64_t row, int64_t key) const;
  double sink(int64_t head) const;                               // -infinity where there is none
  AttentionResult oracle(Allowance* allowance = nullptr) const;  // float64
  AttentionResult twin(
      Arithmetic arithmetic = Arithmetic::kKernel) const;  // fp32 with the kernels' roundings
  // Reads o back out of its layout. `gaps_intact` is false when a byte outside the elements was
  // written.
  std::vector<double> read_o(const std::vector<std::byte>& bytes, bool* gaps_intact) const;
};

struct Errors {
  double max = 0, mean = 0;
  size_t count = 0;  // of elements of O
  double lse_max = 0;
  bool finite = true;  // NaN, and LSE of -inf, exactly where the oracle has them
};

Errors compare(const AttentionResult& got, const AttentionResult& oracle);
// Errors of two results as if they were one.
Errors pooled(const Errors& a, const Errors& b);
// Empty when `got` keeps the rule, else what is broken. Rule: max <= 2 x twin + 1e-5, mean <= 1.2 x
// twin + 1e-6, both doubled for fp32; LSE within 1e-4 relative, and more where scores are large sums (kSumError) or of fewer bits than fp32 has. For kernels of 8-bit products: each
// element within its Allowance, and a mean.
std::string verdict(const AttentionCase& test_case, const AttentionResult& got,
                    Arithmetic arithmetic = Arithmetic::kKernel);
// The rule of the twin alone, and whether it is the one that applies.
std::string verdict(const Errors& kernel, const Errors& twin, const Problem& problem);
bool judged_by_twin(const Problem& problem, Arithmetic arithmetic);

double round_to(Dtype dtype, double value);

}  // namespace attune::testing
