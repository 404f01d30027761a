// SPDX-License-Identifier: Apache-2.0
// Operands by role: the fields of Operands that an OperandSpec speaks of. With it code that walks the
// operands of an op needs no names.
#pragma once

#include "generator/core/op.hpp"
#include "runtime/engine.hpp"

namespace attune {

// Of roles whose kind is kTensor.
inline OperandView Operands::*tensor_of(Role role) {
  switch (role) {
    case Role::kQ:
      return &Operands::q;
    case Role::kK:
      return &Operands::k;
    case Role::kV:
      return &Operands::v;
    default:
      return &Operands::o;
  }
}

// Of roles whose kind is kFactors.
inline ScaleView Operands::*factors_of(Role role) {
  switch (role) {
    case Role::kQScale:
      return &Operands::q_scale;
    case Role::kKScale:
      return &Operands::k_scale;
    case Role::kVScale:
      return &Operands::v_scale;
    default:
      return &Operands::o_scale;
  }
}

// Strides of the default layout, rows of each head at 16 bytes; no address.
OperandView contiguous_view(const OperandSpec& tensor);

}  // namespace attune
