// SPDX-License-Identifier: Apache-2.0
// `attune check --fuzz`: kernels and operands drawn at random, held against the float64 oracle on a device. Each case is known by its
// problem, template, config and one number, and can be run again alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tuner/fuzz/draw.hpp"
#include "tuner/fuzz/judge.hpp"

namespace attune::testing {

struct FuzzCase {
  const KernelTemplate* kernel_template = nullptr;
  Problem problem;
  Config config;
  uint64_t seed = 0;  // of layouts, strides, positions and all numbers
};

struct FuzzFailure {
  FuzzCase at;
  std::string reason;
  bool is_wrong = false;  // a wrong result; else the kernel could not be made or launched
};

struct FuzzCounts {
  int kernels = 0;  // that were run
  int passed_over =
      0;  // whose config the compiler refused, or that spill: the tuner would not take them
  int cases = 0;
  int failures = 0;
  std::map<std::string, int> kernels_of;  // by template
};

class Fuzz {
 public:
  using Report = std::function<void(const FuzzFailure&)>;
  Fuzz(std::shared_ptr<const Device> device, Report report)
      : device_(std::move(device)), report_(std::move(report)) {}

  // A kernel of its own for this seed, in several cases. Templates: those to draw from.
  void run_drawn(uint64_t seed, const std::vector<const KernelTemplate*>& templates);
  // One case; the kernel is made once for cases in a row.
  void run_case(const FuzzCase& one, bool is_default);
  const FuzzCounts& counts() const { return counts_; }
  // A launch failed in the driver, after which a GPU gives this process nothing but errors: there is no going on.
  bool is_device_lost() const { return is_device_lost_; }

 private:
  // Null where the kernel cannot be had.
  const LoadedConfig* load(const FuzzCase& one, bool is_default);
  void fail(const FuzzCase& one, const std::string& reason, bool is_wrong);

  std::shared_ptr<const Device> device_;
  Report report_;
  FuzzCounts counts_;
  bool is_device_lost_ = false;
  std::string loaded_name_;
  std::unique_ptr<LoadedConfig> loaded_;
};

// Templates that serve some problem on the device; only the named one where `name` is not empty. Throws kInvalidArgument or
// kUnsupported where there is none.
std::vector<const KernelTemplate*> fuzzed_templates(const Device& device, const std::string& name);

}  // namespace attune::testing
