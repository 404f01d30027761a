// SPDX-License-Identifier: Apache-2.0
// Operands: the addresses and strides of one call, by name and by the role of an OperandSpec
// (generator/core/problem/op.hpp). Roles let generic code walk the operands of any op.
// operand_check.hpp checks them.
#pragma once

#include <cstdint>

#include "generator/core/problem/op.hpp"
#include "generator/score/features/score_operands.hpp"
#include "templates/shared/listed_arguments.h"

namespace attune {

// Strides (elements) and addresses of one call; see AttentionArgs for shapes.
struct Operands {
  OperandView q, k, v, o;
  OperandView dout{}, dq{}, dk{}, dv{}, dscores{};  // for op attention_backward
  float* lse = nullptr;
  int64_t lse_batch_stride = 0;  // 0 = contiguous [batch, num_heads_q, seqlen_q]
  int64_t lse_head_stride = 0;
  const float* dlse = nullptr;  // for attention_backward; strides like those of lse
  int64_t dlse_batch_stride = 0;
  int64_t dlse_head_stride = 0;
  ScaleView q_scale{}, k_scale{}, v_scale{};  // for narrow operands; null data: each factor is 1
  ScaleView o_scale{};                        // written by op quantise
  const ScoreOperands* scores = nullptr;      // for problems with score features; not owned
  // For problems with dropout: seed and offset; the plan has threshold and scale. Null = seed and
  // offset 0. Not owned.
  const DropoutArgs* dropout = nullptr;
  OperandView k_new{}, v_new{}, cos{}, sin{};  // for op append_kv
  OperandView k_groups{}, v_groups{};          // for 4-bit caches: factors of groups of columns
  // For op append_kv: lists and numbers. Its views are not read; the views above are. Not owned.
  const AppendArgs* append = nullptr;
  const CacheArgs* cache = nullptr;  // for problems with a cache; not owned
  // For problems with key_indices. The length is not read; the problem has it. Not owned.
  const KeyListArgs* lists = nullptr;
};

// Returns the member that holds a tensor. The kind of the role must be kTensor.
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
    case Role::kKGroups:
      return &Operands::k_groups;
    case Role::kVGroups:
      return &Operands::v_groups;
    default:
      return &Operands::o;
  }
}

// The address and strides of a role whose kind is kRowSums. Both strides 0 = contiguous.
struct RowSumsView {
  const float* data;
  int64_t batch_stride, head_stride;
};
inline RowSumsView row_sums_of(const Operands& operands, Role role) {
  if (role == Role::kDlse)
    return {operands.dlse, operands.dlse_batch_stride, operands.dlse_head_stride};
  return {operands.lse, operands.lse_batch_stride, operands.lse_head_stride};
}

// Returns the member that holds factors. The kind of the role must be kFactors.
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

// Returns the strides of the default layout, in which each row of a head starts at a multiple of 16
// bytes. The address is null.
OperandView contiguous_view(const OperandSpec& tensor);
// Returns operands with the default layout [batch, seqlen, num_heads, head_dim], contiguous.
Operands contiguous_operands(const Problem& problem, void* q, void* k, void* v, void* o,
                             float* lse);

}  // namespace attune
