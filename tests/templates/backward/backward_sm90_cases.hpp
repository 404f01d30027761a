// SPDX-License-Identifier: Apache-2.0
// Configs of the four families of gradients on Hopper, for tests.
#pragma once

#include "generator/families/families.hpp"
#include "generator/template_registry.hpp"
#include "tests/templates/prefill/hopper_cases.hpp"

namespace attune::testing {

// One kernel computes all gradients and adds to dq in the order of keys.
inline constexpr const char* kOneKernel =
    "key_block_m=64,q_slots=2,dout_slots=2,section_heads=16,scheduler=0,ordered=1";

// The kernels of dK and dV read scores that the kernel of dQ stored in the workspace.
inline constexpr const char* kStored =
    "block_m=128,block_n=48,k_slots=2,v_slots=1,key_block_n=128,q_slots=2";

// Two kernels, with a separate step for L2 and delta.
inline constexpr const char* kTwoKernels =
    "block_m=128,block_n=48,k_slots=2,key_block_n=128,key_block_m=64,q_slots=2,fold_sums=0";

// Returns the default config of two kernels.
inline Config default_of(const Problem& p) {
  return backward_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
}

struct ChosenKernel {
  std::string name;
  Config config;
};
// Returns the family that runs the problem on an H200 without tuning, and its default config.
inline ChosenKernel chosen_for(const Problem& p) {
  const Family best =
      by_fit(serving(spec_of(p), {hopper()}).families, spec_of(p), shape_of(p), kH200).front();
  return {std::string(best.kernel_template->name()),
          best.kernel_template->default_config(spec_of(p), best.arch, shape_of(p), kH200)};
}

inline std::string refusal_by(const KernelTemplate& kernel_template, const std::string& problem) {
  return kernel_template.refuses(spec_of(parse_problem(problem)), hopper()).value_or("");
}

}  // namespace attune::testing
