// SPDX-License-Identifier: Apache-2.0
// `attune check --fuzz`: draws kernels and operands at random, and checks them on a device against
// the float64 oracle. Problem, template, config and one seed identify a case, so that it can run
// again alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tuner/fuzz/device_run.hpp"
#include "tuner/fuzz/draw.hpp"

namespace attune::testing {

struct FuzzCase {
  const KernelTemplate* kernel_template = nullptr;
  Problem problem;
  Config config;
  uint64_t seed = 0;  // seed of layouts, strides, positions and all numbers
};

struct FuzzFailure {
  FuzzCase at;
  std::string reason;
  bool is_wrong = false;  // a wrong result; else the kernel could not be made or launched
};

struct FuzzCounts {
  int kernels = 0;  // number of kernels that ran
  // Kernels that the tuner would not use either: the compiler refused the config, or registers
  // spilled.
  int passed_over = 0;
  int cases = 0;
  int failures = 0;
  std::map<std::string, int> kernels_of;  // by template
};

class Fuzz {
 public:
  using Report = std::function<void(const FuzzFailure&)>;
  Fuzz(std::shared_ptr<const Device> device, Report report)
      : device_(std::move(device)), report_(std::move(report)) {}

  // Draws a kernel for this seed and runs it in several cases. `templates`: the ones to draw from.
  void run_drawn(uint64_t seed, const std::vector<const KernelTemplate*>& templates);
  // Runs one case. The kernel is made once for consecutive cases.
  void run_case(const FuzzCase& one, bool is_default);
  const FuzzCounts& counts() const { return counts_; }
  // True if a launch failed in the driver. After that, a GPU returns only errors to this process,
  // so the fuzz must end.
  bool is_device_lost() const { return is_device_lost_; }

 private:
  // Returns nullptr if the kernel cannot be made.
  const LoadedConfig* load(const FuzzCase& one, bool is_default);
  void fail(const FuzzCase& one, const std::string& reason, bool is_wrong);

  std::shared_ptr<const Device> device_;
  Report report_;
  FuzzCounts counts_;
  bool is_device_lost_ = false;
  std::string loaded_name_;
  std::unique_ptr<LoadedConfig> loaded_;
};

// Returns the templates that serve some problem on the device, or only the named one if `name` is
// not empty. Throws kInvalidArgument or kUnsupported if there is none.
std::vector<const KernelTemplate*> fuzzed_templates(const Device& device, const std::string& name);

}  // namespace attune::testing
