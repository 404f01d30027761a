// SPDX-License-Identifier: Apache-2.0
// Oracle: the expected results of an op, independent of the kernels that compute them. Each op has
// a file in this folder. tune, check and bench find it by the problem's op.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem/arch.hpp"
#include "generator/core/problem/kernel_spec.hpp"
#include "tuner/measure/inputs.hpp"
#include "tuner/measure/verify.hpp"

namespace attune {

// The inputs of an oracle, for one problem.
struct OracleBench {
  const Device& device;
  const Problem& problem;
  Inputs& inputs;  // opened for the problem
  // Runs the kernel of Oracle::reference_spec on a part of the problem, and waits. Null if the
  // oracle needs no reference.
  std::function<void(const Problem& part, const Operands& operands)> run_reference;
};

// The expected results of one problem. Used while its OracleBench lives.
class Expectation {
 public:
  virtual ~Expectation() = default;
  // Compares a kernel's results with the expected ones. `launch` runs the kernel, and waits.
  virtual CheckError check(const std::function<void(const Operands&)>& launch) = 0;
};

// Attention as a framework computes it on a CPU without a fused kernel; `attune bench` compares
// with it.
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
  // Returns the spec of the reference kernel; nullopt if the oracle computes on the host. Such
  // expectations hold no device memory: they stay valid when the same inputs are laid out again.
  virtual std::optional<KernelSpec> reference_spec(const Problem&, Target) const {
    return std::nullopt;
  }
  virtual std::unique_ptr<Expectation> expect(const OracleBench& bench) const = 0;
  virtual std::unique_ptr<StandardWay> standard(const Problem&, int /*num_threads*/) const {
    return nullptr;
  }
};

// Returns the oracle of the problem's op. Throws kInternal if there is none.
const Oracle& oracle_of(const Problem& problem);
// Adds an oracle from elsewhere (for tests), which must stay alive. Call it before any other use of
// oracles.
void add_oracle(const Oracle& oracle);

// Returns rows [row_begin, row_end) of one batch of a tensor on the device, as [rows, heads,
// columns]. The tensor must not be transposed.
std::vector<float> tensor_rows(const Device& device, const OperandSpec& tensor,
                               const OperandView& view, int64_t batch, int64_t row_begin,
                               int64_t row_end);
// Returns the rows of one head alone, as [rows, columns].
std::vector<float> head_rows(const Device& device, const OperandSpec& tensor,
                             const OperandView& view, int64_t batch, int64_t head,
                             int64_t row_begin, int64_t row_end);

}  // namespace attune
