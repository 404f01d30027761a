// SPDX-License-Identifier: Apache-2.0
// Inputs: operands of one problem in device memory, as many sets as exceed twice the L2, so that no
// launch finds its data in cache. Values are seeded N(0,1), never zero: kernels run faster on
// zeros. Outputs are poisoned with NaN before a check.
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

 private:
  void reserve(Dtype dtype, int64_t input_bytes, int64_t output_bytes, int64_t lse_bytes);

  const Device& device_;
  const uint64_t seed_;
  Dtype filled_dtype_ = Dtype::kFp32;
  DeviceMemory inputs_, outputs_, lse_;
  int64_t output_set_bytes_ = 0;
  std::vector<Operands> sets_;
};

// `count` values of N(0,1) as elements of `dtype`.
std::string normal_values(Dtype dtype, int64_t count, uint64_t seed);
// How many sets of this size exceed twice the cache; at least 1.
int64_t num_rotating_sets(int64_t set_bytes, int64_t l2_bytes);

}  // namespace attune
