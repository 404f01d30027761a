// SPDX-License-Identifier: Apache-2.0
// Operands: the addresses and strides of one call, by name and by the role that an OperandSpec
// (generator/core/op.hpp) speaks of. With roles, code that walks the operands of an op needs no names.
// What they must be: operand_check.hpp.
#pragma once

#include <cstdint>

#include "generator/core/op.hpp"
#include "generator/core/score_operands.hpp"
#include "templates/shared/kernel_arguments.h"

namespace attune {

// Strides (elements) and addresses of one call; see AttentionArgs for shapes.
struct Operands {
  OperandView q, k, v, o;
  OperandView dout{}, dq{}, dk{}, dv{}, dscores{};  // of the op attention_backward
  float* lse = nullptr;
  int64_t lse_batch_stride = 0;  // 0 = contiguous [batch, num_heads_q, seqlen_q]
  int64_t lse_head_stride = 0;
  const float* dlse = nullptr;  // of attention_backward; strides as those of lse
  int64_t dlse_batch_stride = 0;
  int64_t dlse_head_stride = 0;
  ScaleView q_scale{}, k_scale{}, v_scale{};  // 8-bit operands; null data: every factor is 1
  ScaleView o_scale{};                        // written by the quantise op
  const ScoreOperands* scores = nullptr;      // of problems with score features; not owned
  // Of problems with dropout; threshold and scale are the plan's. Null: seed and offset 0. Not owned.
  const DropoutArgs* dropout = nullptr;
  OperandView k_new{}, v_new{}, cos{}, sin{};  // of the op append_kv
  // Of that op: lists and numbers; its views are those above. Not owned
  const AppendArgs* append = nullptr;
  const CacheArgs* cache = nullptr;  // of problems with a cache; num_pages is the plan's. Not owned
};

// Of roles whose kind is kTensor.
constexpr OperandView Operands::*tensor_of(Role role) {
  switch (role) {
    case Role::kQ:
      return &Operands::q;
    case Role::kK:
      return &Operands::k;
    case Role::kV:
      return &Operands::v;
    case Role::kDout:
      return &Operands::dout;
    case Role::kDq:
      return &Operands::dq;
    case Role::kDk:
      return &Operands::dk;
    case Role::kDv:
      return &Operands::dv;
    case Role::kDscores:
      return &Operands::dscores;
    case Role::kNewK:
      return &Operands::k_new;
    case Role::kNewV:
      return &Operands::v_new;
    case Role::kCos:
      return &Operands::cos;
    case Role::kSin:
      return &Operands::sin;
    default:
      return &Operands::o;
  }
}

// Of roles whose kind is kRowSums. The strides are the caller's: both 0 where contiguous.
struct RowSumsView {
  const float* data;
  int64_t batch_stride, head_stride;
};
inline RowSumsView row_sums_of(const Operands& operands, Role role) {
  if (role == Role::kDlse)
    return {operands.dlse, operands.dlse_batch_stride, operands.dlse_head_stride};
  return {operands.lse, operands.lse_batch_stride, operands.lse_head_stride};
}

// Of roles whose kind is kFactors.
constexpr ScaleView Operands::*factors_of(Role role) {
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
// Views with the default layout [batch, seqlen, num_heads, head_dim], contiguous.
Operands contiguous_operands(const Problem& problem, void* q, void* k, void* v, void* o,
                             float* lse);

}  // namespace attune
