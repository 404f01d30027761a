// SPDX-License-Identifier: Apache-2.0
// OperandRules: the rules for the operands of a problem, as numbers to compare with. A plan
// computes them once, so that a run compares each stride a few times and divides nothing. They only
// say yes or no; operand_check.hpp finds the sentence for a no.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

#include "generator/core/op.hpp"
#include "runtime/operands.hpp"

namespace attune {

// Alignment in bytes of the addresses of tensors, and of their strides in dimensions longer than 1.
inline constexpr int kOperandAlignment = 16;

// TMA takes strides below this number of bytes.
inline constexpr int64_t kTensorMapReach = int64_t{1} << 40;

class OperandRules {
 public:
  OperandRules() = default;
  OperandRules(const OperandList& list);  // NOLINT: the list and the rules that follow from it

  const OperandList& list() const { return list_; }
  // True if no output has elements: there is nothing to launch.
  bool writes_nothing() const { return writes_nothing_; }

  // True if check_operands would not throw.
  bool allow(const Operands& operands) const noexcept;
  // True if TMA can load the operands: tensor_map_refusal has no reason.
  bool suit_tensor_maps(const Operands& operands) const noexcept;

 private:
  // A dimension that a stride steps over. A dimension of one step has `used` 0: its stride is free.
  struct Dimension {
    uint64_t used = 0;      // all ones if there is more than one step
    uint64_t more = 0;      // steps after the first
    uint64_t most = 0;      // largest stride that stays in the address range
    int64_t most_maps = 0;  // largest stride that TMA takes
  };
  using Strides = std::array<uint64_t, 3>;  // by head, line and batch entry
  struct Strided {
    std::array<Dimension, 3> dimensions;
    uint64_t line = 0;       // contiguous elements
    uint64_t least = 0;      // smallest stride but 0
    uint64_t part = 0;       // bits that must be 0, by the alignment
    bool may_repeat = true;  // by a stride of 0
    bool allows(const Strides& strides) const noexcept;
  };
  struct Tensor {
    OperandView Operands::*view = nullptr;
    bool empty = false;
    bool has_usual = false;  // `usual` is allowed
    OperandView usual;       // strides of the default layout, which most calls have
    Strided layout;
    bool allows(const OperandView& given) const noexcept;
  };
  struct Factors {
    bool given = false;  // the caller may give them
    bool required = false, written = false;
    int heads = 1;
    Strided layout;  // by batch entry, head and block of rows of rows
    bool allows(const ScaleView& view) const noexcept;
  };
  struct RowSums {
    Role role = Role::kLse;
    bool required = false;
    Strided layout;
    bool allows(const RowSumsView& view) const noexcept;
  };

  static Dimension dimension(int64_t extent, int64_t element_bytes);
  void add_tensor(const OperandSpec& tensor);
  void add_row_sums(const OperandSpec& row_sums);
  void add_factors(const OperandSpec& factors);

  OperandList list_;
  std::array<Tensor, std::size(kTensorRoles)> tensors_;
  size_t num_tensors_ = 0;
  std::array<Factors, std::size(kFactorRoles)> factors_;  // as kFactorRoles
  std::array<RowSums, 2> row_sums_;
  size_t num_row_sums_ = 0;
  bool writes_nothing_ = true;
};

}  // namespace attune
