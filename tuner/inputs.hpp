// SPDX-License-Identifier: Apache-2.0
// Inputs: operands of one problem in device memory, as many sets as exceed twice the L2, so that no
// launch finds its data in cache. Values are seeded N(0,1), never zero: kernels run faster on
// zeros. 8-bit elements are N(0,1) rounded to their type, and each head or block of rows has a
// factor of its own between 0.7 and 1.4, so that a kernel that takes a wrong one is found wrong.
// Beside them stands a V of 8 bits with a mean, whose sums have one sign: kernels are held against
// it too, not timed. Outputs are poisoned with NaN before a check.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine.hpp"

namespace attune {

// Owns device memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const Device& device, int64_t bytes);  // throws kOutOfMemory
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  char* data() const { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  const Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Inputs {
 public:
  Inputs(const Device& device, uint64_t seed) : device_(device), seed_(seed) {}

  // Lays out sets for the problem; memory of a former problem is used again where it is large
  // enough.
  void open(const Problem& problem);
  int num_sets() const { return static_cast<int>(sets_.size()); }
  const Operands& set(int index) const {
    return sets_[static_cast<size_t>(index) % sets_.size()];
  }  // lse is null
  // Set 0 with an LSE buffer, outputs filled with NaN.
  Operands poisoned();
  // V in place of set 0's: N(1,1). Only where the problem has 8-bit operands.
  const OperandView& v_with_mean() const { return v_with_mean_; }
  // Of 8-bit q, in its `block`th block of rows.
  float q_factor(int64_t batch, int64_t head, int64_t block) const;

 private:
  struct Filled {  // with random elements of one dtype
    DeviceMemory memory;
    Dtype dtype = Dtype::kFp32;
  };
  struct Factors {
    DeviceMemory memory;
    std::vector<float> host;
    ScaleView view{};
  };
  void reserve(const Problem& problem, int64_t q_bytes, int64_t kv_bytes, int64_t output_bytes);
  void fill(Filled* filled, Dtype dtype, int64_t bytes, uint64_t seed, float mean = 0) const;
  void open_factors(const Problem& problem);
  Factors make_factors(int64_t batch, int heads, int64_t rows, int block, int heads_per_scale,
                       uint64_t stream) const;

  const Device& device_;
  const uint64_t seed_;
  Filled q_, kv_, v_mean_;
  OperandView v_with_mean_{};
  DeviceMemory outputs_, lse_;
  Factors q_factors_, k_factors_, v_factors_, o_factors_;
  int64_t output_set_bytes_ = 0;
  std::vector<Operands> sets_;
};

// `count` values of N(mean,1) as elements of `dtype`.
std::string normal_values(Dtype dtype, int64_t count, uint64_t seed, float mean = 0);
// How many sets of this size exceed twice the cache; at least 1.
int64_t num_rotating_sets(int64_t set_bytes, int64_t l2_bytes);

}  // namespace attune
