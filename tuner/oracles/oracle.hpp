// SPDX-License-Identifier: Apache-2.0
// Oracle: what the results of an op must be, independently of the kernels that make them. Each op
// has a file beside this one; tune, check and bench ask for it by the problem's op.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/arch.hpp"
#include "generator/core/kernel_spec.hpp"
#include "tuner/inputs.hpp"
#include "tuner/verify.hpp"

namespace attune {

// What an oracle has to work with, for one problem.
struct OracleBench {
  const Device& device;
  const Problem& problem;
  Inputs& inputs;  // opened for the problem
  // Runs the kernel of Oracle::reference_spec on a part of the problem, and waits. Null where the
  // oracle needs none.
  std::function<void(const Problem& part, const Operands& operands)> run_reference;
};

// What the results of one problem must be. Used while its OracleBench lives.
class Expectation {
 public:
  virtual ~Expectation() = default;
  // Holds a kernel against it. `launch` runs the kernel, and waits.
  virtual CheckError check(const std::function<void(const Operands&)>& launch) = 0;
};

// How a framework computes it on a CPU without a kernel of its own, for comparison in `attune bench`.
class StandardWay {
 public:
  virtual ~StandardWay() = default;
  virtual int64_t scratch_bytes() const = 0;
  virtual void run(const Operands& operands, void* scratch) const = 0;
};

class Oracle {
 public:
  virtual ~Oracle() = default;
  virtual Op op() const = 0;
  // Of the reference kernel that it compares with; nullopt: it computes on the host.
  virtual std::optional<KernelSpec> reference_spec(const Problem&, Target) const {
    return std::nullopt;
  }
  virtual std::unique_ptr<Expectation> expect(const OracleBench& bench) const = 0;
  virtual std::unique_ptr<StandardWay> standard(const Problem&, int /*num_threads*/) const {
    return nullptr;
  }
};

// Throws kInternal when the problem's op has none.
const Oracle& oracle_of(const Problem& problem);
// Adds an oracle from elsewhere (of a test), which must stay alive. To be called before anything
// else.
void add_oracle(const Oracle& oracle);

// Rows [row_begin, row_end) of one batch of a tensor on the device that is not transposed, as [rows,
// heads, columns].
std::vector<float> tensor_rows(const Device& device, const OperandSpec& tensor,
                               const OperandView& view, int64_t batch, int64_t row_begin,
                               int64_t row_end);

}  // namespace attune
