// SPDX-License-Identifier: Apache-2.0
// Runs one config of one template on a real device for an AttentionCase: renders, compiles, loads,
// launches and reads back.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "generator/template_registry.hpp"
#include "runtime/engine/device.hpp"
#include "tuner/fuzz/attention_case.hpp"

namespace attune::testing {

struct RunOutcome {
  AttentionResult result;
  bool gaps_intact = false;
  bool repeats_bit_equal = false;  // a second launch over a poisoned output gave the same bytes
};

// Returns the best arch of the device that the template serves. Throws Error if there is none.
Arch arch_for(const Device& device, const KernelTemplate& kernel_template, const KernelSpec& spec);

// A compiled and loaded config. It can be launched on any number of cases of its spec.
class LoadedConfig {
 public:
  LoadedConfig(std::shared_ptr<const Device> device, const KernelTemplate& kernel_template,
               const KernelSpec& spec, const Config& config);
  RunOutcome run(const AttentionCase& test_case) const;
  // Returns why the image must not be used ("spills ..."); empty if it can be used.
  const std::string& fault() const { return fault_; }

 private:
  std::shared_ptr<const Device> device_;
  const KernelTemplate& template_;
  KernelSpec spec_;
  Config config_;
  KernelImage image_;
  std::string fault_;
};

// Runs a kernel on one AttentionCase and applies the rules of attention_verdict.cpp.

// Returns the arithmetic of a template on a device of this kind.
Arithmetic arithmetic_of(const KernelTemplate& kernel_template, Target target);

using Redraw = std::function<AttentionCase(uint64_t seed)>;  // the same case with other numbers

// Returns the fault of a run: a wrong result, a write outside o, or two runs that differ. Empty if
// there is none.
std::string fault_of(const LoadedConfig& loaded, const AttentionCase& test_case,
                     Arithmetic arithmetic, const Redraw& redraw);

}  // namespace attune::testing
