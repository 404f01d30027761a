// SPDX-License-Identifier: Apache-2.0
// One attention call, used by tests and `attune check --fuzz`: random host operands in some layout,
// a float64 oracle, and a low-precision twin. The twin rounds where the kernels round (P to the
// operands' dtype before P.V, O at the end). None of it shares code with the kernels. 8-bit
// operands have random factors; their oracle multiplies elements by factors. For the rules see
// attention_verdict.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/core/problem/problem.hpp"
#include "generator/score/features/score_operands.hpp"
#include "generator/score/language/evaluate.hpp"
#include "tuner/fuzz/host_capture.hpp"
#include "tuner/fuzz/host_operand.hpp"

namespace attune::testing {

enum class Inputs {
  kNormal,         // N(0,1)
  kLogitsTimes16,  // q is scaled, so that softmax is nearly one-hot
  kLogitsTimes64,
  kAllNegative,  // every score is far below zero
  kOutlierRow,   // one key is 30 times larger than the others
  kOutliers,     // N(0,1), with N(0,100) added to one element of 1000
  kMeanOfV,      // N(0,1), with a mean of 1 for V: sums of one sign
  // The last two are for 8 bits; for other types they are N(0,1).
  kSaturated,   // the largest values lie beyond the type's largest
  kSubnormals,  // most elements are below the type's smallest normal number
};

struct AttentionResult {
  std::vector<double> o;  // [batch, seqlen_q, num_heads_q, head_dim_v]
  // [batch, num_heads_q, seqlen_q]; with max_logits the largest logits [num_heads_q] follow
  std::vector<double> lse;
};

// The error that a kernel with 8-bit products may have, from the rounding of P and from the short
// accumulator of the tensor cores.
struct Allowance {
  std::vector<double> o, lse;  // per element
  double mean_noise = 0;       // expected mean error of O that the twin does not have
};

// The arithmetic of products and sums.
enum class Arithmetic {
  kKernel,  // as in kernels for the problem's dtypes: P in the operands' dtype
  // Only O is rounded, as in references and CPU kernels. Differs from kKernel for 8 bits, and for
  // fp32 in modes other than accurate.
  kFp32,
};

struct AttentionCase {
  Problem problem;
  HostOperand q, k, v, o;  // o: NaN everywhere
  HostScale q_scale, k_scale, v_scale;
  score::Program program;             // score_program(problem)
  std::vector<HostCapture> captures;  // in the order of captures_of(problem)
  score::Loads loads;                 // of the captures and the scalars
  std::vector<ScoreScalar> scalars;   // in the order of scalars_of(problem)
  // The positions of row 0 and key 0. Set them before any other use.
  int q_position0 = 0, kv_position0 = 0;

  // Draws operands. For 8 bits, it also draws the kind of factors, among the kinds that the
  // problem's scale blocks allow. Occasionally a factor is 0.
  AttentionCase(const Problem& problem, Layout layout, Inputs inputs, uint64_t seed);
  // Returns the score operands with the captures at these addresses, on the host or on a device.
  ScoreOperands score_operands(const std::vector<const void*>& addresses) const;
  std::vector<const void*> score_data() const;  // on the host
  // Applies the problem's score program to a scaled score.
  double scored(double score, int64_t batch, int64_t head, int64_t row, int64_t key) const;
  double sink(int64_t head) const;                               // -infinity if there is none
  AttentionResult oracle(Allowance* allowance = nullptr) const;  // float64
  AttentionResult twin(
      Arithmetic arithmetic = Arithmetic::kKernel) const;  // fp32 with the kernels' roundings
  // Reads o back out of its layout. `gaps_intact` becomes false if a byte outside the elements was
  // written.
  std::vector<double> read_o(const std::vector<std::byte>& bytes, bool* gaps_intact) const;
};

struct Errors {
  double max = 0, mean = 0;
  size_t count = 0;  // number of elements of O
  double lse_max = 0;
  bool finite = true;  // NaN, and an LSE of -inf, only and always where the oracle has them
};

Errors compare(const AttentionResult& got, const AttentionResult& oracle);
// Combines the errors of two results as if they were one.
Errors pooled(const Errors& a, const Errors& b);
// Returns the broken rule; empty if `got` keeps all rules.
// - max <= 2 x twin + 1e-5, mean <= 1.2 x twin + 1e-6; both are doubled for fp32.
// - LSE within 1e-4 relative; more if scores are large sums (kSumError) or have fewer bits than
// fp32.
// - For kernels with 8-bit products: each element within its Allowance, and a bound for the mean.
std::string verdict(const AttentionCase& test_case, const AttentionResult& got,
                    Arithmetic arithmetic = Arithmetic::kKernel);
// The first checks the rule of the twin alone. The second is true if this rule applies.
std::string verdict(const Errors& kernel, const Errors& twin, const Problem& problem);
bool judged_by_twin(const Problem& problem, Arithmetic arithmetic);

double round_to(Dtype dtype, double value);

// The values of fp32 operands in kernels that use less than fp32 arithmetic. Used by the
// low-precision twin.

// Rounds a weight P as kernels do before they multiply V: to 16 bits, or for fp32 by the accuracy.
double round_weight(const Problem& problem, Arithmetic arithmetic, double value);

// Returns the case with q, k and v rounded as kernels round them; unchanged if kernels use the
// operands unrounded.
AttentionCase with_rounded_operands(const AttentionCase& test_case, Arithmetic arithmetic);

}  // namespace attune::testing
