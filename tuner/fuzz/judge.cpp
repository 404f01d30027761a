// SPDX-License-Identifier: Apache-2.0
// Judges runs of kernels; see judge.hpp.
#include "tuner/fuzz/judge.hpp"

#include <algorithm>

namespace attune::testing {
namespace {

constexpr size_t kPooledRows = 64;

// Judges a case again, pooled with other cases that differ in their random numbers: at least three,
// and enough for kPooledRows rows. Called for a case that misses the twin's rule. The twin's errors
// are random too, so one case of a hundred misses the rule by chance; small cases do more often. A
// wrong result stays wrong, because the largest error is not averaged.
std::string verdict_of_more(const LoadedConfig& loaded, const AttentionCase& first,
                            const AttentionResult& result, Arithmetic arithmetic,
                            const Redraw& redraw) {
  const AttentionResult exact = first.oracle();
  Errors kernel = compare(result, exact), twin = compare(first.twin(arithmetic), exact);
  const uint64_t others =
      std::max<uint64_t>(3, kPooledRows / std::max<size_t>(1, exact.lse.size()));
  for (uint64_t seed = 1; seed <= others; ++seed) {
    const AttentionCase more = redraw(seed);
    const AttentionResult oracle = more.oracle();
    kernel = pooled(kernel, compare(loaded.run(more).result, oracle));
    twin = pooled(twin, compare(more.twin(arithmetic), oracle));
  }
  return verdict(kernel, twin, first.problem);
}

}  // namespace

Arithmetic arithmetic_of(const KernelTemplate& kernel_template, Target target) {
  return kernel_template.is_reference() || target == Target::kCpu ? Arithmetic::kFp32
                                                                  : Arithmetic::kKernel;
}

std::string fault_of(const LoadedConfig& loaded, const AttentionCase& test_case,
                     Arithmetic arithmetic, const Redraw& redraw) {
  const RunOutcome outcome = loaded.run(test_case);
  std::string broken = verdict(test_case, outcome.result, arithmetic);
  if (!broken.empty() && judged_by_twin(test_case.problem, arithmetic))
    broken = verdict_of_more(loaded, test_case, outcome.result, arithmetic, redraw);
  if (!broken.empty()) return broken;
  if (!outcome.gaps_intact) return "wrote outside o";
  return outcome.repeats_bit_equal ? "" : "two runs differ";
}

}  // namespace attune::testing
