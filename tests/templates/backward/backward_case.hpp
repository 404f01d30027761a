// SPDX-License-Identifier: Apache-2.0
// Op attention_backward for tests: operands of one problem on a device, with o and lse from a
// forward kernel, and the gradients that a config computes. Used by backward_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "generator/core/problem/op.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/operands/operands.hpp"
#include "tuner/measure/inputs.hpp"

namespace attune::testing {

// [batch, heads, rows, columns], as numbers.
struct HostTensor {
  int64_t heads = 0, rows = 0, columns = 0;
  std::vector<float> values;
  float at(int64_t batch, int64_t head, int64_t row, int64_t column) const {
    return values[static_cast<size_t>(((batch * heads + head) * rows + row) * columns + column)];
  }
  bool operator==(const HostTensor&) const = default;  // no NaN is equal
};

struct GradientTensors {
  std::vector<std::pair<Role, HostTensor>> all;
  bool has(Role role) const;
  const HostTensor& of(Role role) const;
  bool operator==(const GradientTensors&) const = default;
};

// Returns "" if `found` equals `wanted` up to a relative error of the whole, and of each row up to
// ten times that error. Otherwise returns the fault.
std::string difference(const HostTensor& found, const HostTensor& wanted, double tolerance);

struct BackwardOptions {
  bool heads_first = false;  // tensors are [batch, heads, rows, columns]
  bool dlse = false;
  bool no_dout = false;  // it is 0
};

class BackwardCase {
 public:
  BackwardCase(std::shared_ptr<const Device> device, const Problem& problem, uint64_t seed,
               BackwardOptions options = {});

  const Problem& problem() const { return problem_; }
  // Returns why an image of this config must not be measured, or "".
  std::string fault(const KernelTemplate& t, const Config& config) const;
  // Runs with NaN in the outputs and the workspace.
  GradientTensors run(const KernelTemplate& t, const Config& config) const;

  // Return the fault of sums over all rows or keys, or "".
  std::string sum_of_dv_fault(const GradientTensors& found) const;
  std::string inner_product_fault(const GradientTensors& found) const;

 private:
  struct Tensor {
    OperandSpec spec;
    OperandView view{};
    DeviceMemory memory;
  };
  void add(const OperandSpec& spec, uint64_t seed);
  void run_forward();
  void run_plan(const Problem& problem, const KernelTemplate& t, const Config& config) const;
  const KernelImage& image(const Problem& problem, const KernelTemplate& t,
                           const Config& config) const;
  HostTensor download(const Tensor& tensor) const;
  const Tensor& of(Role role) const;

  std::shared_ptr<const Device> device_;
  Problem problem_;
  BackwardOptions options_;
  std::vector<Tensor> tensors_;
  DeviceMemory lse_, dlse_;
  mutable std::map<std::string, KernelImage> images_;
};

}  // namespace attune::testing
