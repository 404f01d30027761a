// SPDX-License-Identifier: Apache-2.0
// Compiles CPU templates and runs them without a Device, for an arch that the test chooses
// (narrower vectors than the machine's, no fused multiply-add) and any number of threads.
#pragma once

#include <memory>
#include <vector>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/kernel_template.hpp"
#include "tests/support/guarded_buffer.hpp"
#include "tuner/fuzz/attention_case.hpp"

namespace attune::testing {

struct HostOutcome {
  AttentionResult result;
  // Nothing was written outside the elements of o, or around an operand or the workspace.
  bool gaps_intact = false;
  bool counters_clear = false;  // the zeroed part of the workspace is zero again
};

class HostConfig {
 public:
  // Renders for `rendered_for` (null: for `arch`), and compiles for `arch`.
  HostConfig(const CpuToolchain& toolchain, const Arch& arch, const KernelTemplate& kernel_template,
             const KernelSpec& spec, const Config& config, const Arch* rendered_for = nullptr);
  // Runs a case. Every operand and the workspace are between guard pages (guarded_buffer.hpp).
  // `dropout` is for kernels with dropout.
  HostOutcome run(const AttentionCase& test_case, int threads, Against against = Against::kEnd,
                  const DropoutArgs& dropout = {}) const;
  const KernelImage& image() const { return image_; }

 private:
  const KernelTemplate& template_;
  KernelSpec spec_;
  Config config_;
  KernelImage image_;
  std::unique_ptr<HostKernel> kernel_;
};

}  // namespace attune::testing
