// SPDX-License-Identifier: Apache-2.0
// Inputs: operands of one problem in device memory. There are so many sets that together they
// exceed twice the L2, up to 512 MiB and 1024 sets, so that a launch rarely finds its data in the
// cache. The op defines which operands there are (generator/core/problem/op.hpp). Tensors hold
// seeded N(0,1) and are never filled with zeros, because kernels run faster on zeros. 8-bit
// elements are N(0,1) rounded to their type. Each head or block of rows has its own factor between
// 0.7 and 1.4, so that a kernel that uses a wrong factor gives a wrong result. Outputs are filled
// with NaN before a check.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem/op.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/operands/operands.hpp"
#include "tuner/measure/cache_inputs.hpp"
#include "tuner/measure/device_memory.hpp"

namespace attune {

class Inputs {
 public:
  Inputs(const Device& device, uint64_t seed) : device_(device), seed_(seed) {}

  // Lays out sets for the problem, or one set if no kernel will be timed. Reuses memory of a former
  // problem if it is large enough. Throws kOutOfMemory with the problem's text.
  void open(const Problem& problem, bool is_timed = true);
  int num_sets() const { return static_cast<int>(sets_.size()); }
  // Returns a set without optional outputs.
  const Operands& set(int index) const { return sets_[static_cast<size_t>(index) % sets_.size()]; }
  // Returns set 0 with all its outputs, filled with NaN.
  Operands poisoned();
  // Returns set 0 with all its outputs, filled with the given byte.
  Operands with_outputs_of(int byte);
  // Returns the captures and scalars of the problem's score program; all sets share them.
  const ScoreOperands& scores() const { return scores_; }
  // Returns the lists of the cache for checked calls on set 0. The problem must have a cache or
  // lists of keys.
  const CacheLists& cache() const { return cache_.checked_lists(); }
  // Gives a tensor of set 0 other values: N(mean,1). They stay until the next problem is opened.
  OperandView with_mean(Role tensor, float mean);
  // Returns the factor of a head's `block`th block of rows.
  float factor(Role factors, int64_t batch, int64_t head, int64_t block) const;

 private:
  struct Filled {
    DeviceMemory memory;
    std::optional<Dtype> dtype;  // type of its random elements; none: an op has written it
  };
  struct Factors {
    DeviceMemory memory;
    std::vector<float> host;
    ScaleView view{};
  };
  void lay_out(const Problem& problem, bool is_timed);
  void open_tensor(const Problem& problem, const OperandSpec& tensor, int64_t count);
  void fill_with(const OperandSpec& tensor, int64_t count, const std::string& table);
  void open_row_sums(const Problem& problem, const OperandSpec& row_sums);
  void open_rest(const Problem& problem, const OperandSpec& operand);
  void set_row_sums(Role role, Operands* set) const;
  void open_captures(const Problem& problem);
  Operands make_set(int64_t index) const;
  void fill(Filled* filled, Dtype dtype, int64_t bytes, uint64_t stream, float mean = 0) const;
  Factors make_factors(const OperandSpec& factors) const;
  int64_t set_bytes(const OperandSpec& tensor) const;

  const Device& device_;
  const uint64_t seed_;
  OperandList operands_;
  bool v_in_k_ = false;
  std::array<Filled, kNumRoles> tensors_, means_;
  std::array<Factors, kNumRoles> factors_;
  std::array<Filled, 2> row_sums_;  // of lse and dlse
  std::vector<DeviceMemory> captures_;
  ScoreOperands scores_;
  CacheInputs cache_;
  std::vector<Operands> sets_;
};

// Returns `count` values of N(mean,1) as elements of `dtype`.
std::string normal_values(Dtype dtype, int64_t count, uint64_t seed, float mean = 0);
// Returns how many sets of this size exceed twice the cache; at least 1.
int64_t num_rotating_sets(int64_t set_bytes, int64_t l2_bytes);

}  // namespace attune
