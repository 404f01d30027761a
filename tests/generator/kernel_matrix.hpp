// SPDX-License-Identifier: Apache-2.0
// The compile matrix: every default config of every (CUDA template, arch), and the CUDA kernels of
// the golden cases. Used by compile_matrix_test.cpp, which compiles them, and by
// kernel_digests.cpp, which prints their digests.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/template_registry.hpp"

namespace attune::testing {

struct MatrixKernel {
  const KernelTemplate* kernel_template;
  KernelSpec spec;
  Arch arch;
  Config config;
  std::string id;  // name of the golden case, or eight hex digits for the spec and the shape

  std::string name() const;           // template, arch, spec and config in full
  std::string key() const;            // "TEMPLATE ARCH ID"; a changed config keeps it
  std::string config_digest() const;  // eight hex digits
};

// True for the key of a golden case, whose last word is a name, not a digest.
bool is_golden(std::string_view key);
// True for golden cases, and for one matrix kernel in `step`, chosen by its key alone: a new kernel
// does not change which others are in the sample.
bool in_sample(std::string_view key, uint32_t step);

std::vector<KernelSpec> matrix_specs();
// Returns the distinct default configs of the templates whose keys are wanted; shapes often share a
// config. Choosing a default config is slow, so the caller filters by key first.
std::vector<MatrixKernel> matrix_kernels(const std::vector<const KernelTemplate*>& templates,
                                         const std::function<bool(const std::string&)>& is_wanted);
std::vector<MatrixKernel> golden_cuda_kernels();

}  // namespace attune::testing
