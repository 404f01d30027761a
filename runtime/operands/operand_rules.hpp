// SPDX-License-Identifier: Apache-2.0
// OperandRules: limits for the operands of a problem. A plan computes them once, so that a run
// needs only a few comparisons per stride and no division. They only accept or refuse;
// operand_check.hpp finds the message for a refusal.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

#include "generator/core/problem/op.hpp"
#include "runtime/operands/operands.hpp"

namespace attune {

// Strides for TMA must be below this number of bytes.
inline constexpr int64_t kTensorMapReach = int64_t{1} << 40;

class OperandRules {
 public:
  OperandRules() = default;
  OperandRules(const OperandList& list);  // NOLINT: implicit, since the rules follow from the list

  const OperandList& list() const { return list_; }
  // True if all outputs are empty: there is nothing to launch.
  bool writes_nothing() const { return writes_nothing_; }

  // True if check_operands would not throw.
  bool allow(const Operands& operands) const noexcept;
  // True if TMA can load the operands: tensor_map_refusal would return nullopt.
  bool suit_tensor_maps(const Operands& operands) const noexcept;

 private:
  // Limits of one stride. The stride of a dimension of extent 1 is not checked: `used` is 0.
  struct Dimension {
    uint64_t used = 0;      // all ones if the extent is above 1
    uint64_t more = 0;      // the extent minus 1
    uint64_t most = 0;      // largest stride that stays in the address range
    int64_t most_maps = 0;  // largest stride that TMA can load
  };
  using Strides = std::array<uint64_t, 3>;  // by head, line and batch entry
  struct Strided {
    std::array<Dimension, 3> dimensions;
    uint64_t line = 0;       // contiguous elements
    uint64_t least = 0;      // smallest stride except 0
    uint64_t part = 0;       // bits that must be 0 for the alignment
    bool may_repeat = true;  // a stride of 0 is valid
    bool allows(const Strides& strides) const noexcept;
  };
  struct Tensor {
    OperandView Operands::*view = nullptr;
    bool empty = false;
    bool has_usual = false;  // `usual` is allowed
    uint64_t alignment = kOperandAlignment;
    OperandView usual;  // strides of the default layout, which most calls have
    Strided layout;
    bool allows(const OperandView& given) const noexcept;
  };
  struct Factors {
    bool given = false;  // the caller may give them
    bool required = false, written = false;
    int heads = 1;
    Strided layout;  // dimensions: batch entry, head, block of rows
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
  std::array<Factors, std::size(kFactorRoles)> factors_;  // in the order of kFactorRoles
  std::array<RowSums, 2> row_sums_;
  size_t num_row_sums_ = 0;
  bool writes_nothing_ = true;
};

}  // namespace attune
