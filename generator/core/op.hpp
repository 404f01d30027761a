// SPDX-License-Identifier: Apache-2.0
// OpDescription: what an op is to everything but its kernels and its oracle: its name, which problems
// it has, its operands, its useful work. Each op has a file in ops/; nothing else asks which op a
// problem has. tuner/oracles/ has what its results must be.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem.hpp"

namespace attune {

// The places that a call has for operands: fields of attune_operands (attune.h). An op uses some.
enum class Role : int {
  kQ,
  kK,
  kV,
  kO,
  kDout,  // the gradient of o, from here on attune_operands.gradients
  kDq,
  kDk,
  kDv,
  kDscores,  // the gradient of what a score feature reads
  kNewK,     // of the op append_kv, from here on attune_operands.append
  kNewV,
  kCos,
  kSin,
  kLse,
  kDlse,  // the gradient of lse
  kQScale,
  kKScale,
  kVScale,
  kOScale
};
inline constexpr int kNumRoles = 19;

// The places of tensors, and those of factors with their names in messages.
inline constexpr Role kTensorRoles[] = {
    Role::kQ,  Role::kK,       Role::kV,    Role::kO,    Role::kDout, Role::kDq, Role::kDk,
    Role::kDv, Role::kDscores, Role::kNewK, Role::kNewV, Role::kCos,  Role::kSin};
struct FactorRole {
  Role role;
  const char* name;
};
inline constexpr FactorRole kFactorRoles[] = {{Role::kQScale, "q_scale"},
                                              {Role::kKScale, "k_scale"},
                                              {Role::kVScale, "v_scale"},
                                              {Role::kOScale, "o_scale"}};

// How an operand is addressed, which follows from its role.
enum class OperandKind {
  kTensor,   // elements [batch, rows, heads, columns] with three strides
  kRowSums,  // fp32 [batch, heads, rows] with two strides, both 0 where contiguous
  kFactors,  // fp32 [batch, heads, blocks of rows] of an 8-bit tensor
};
constexpr OperandKind kind_of(Role role) {
  if (role <= Role::kSin) return OperandKind::kTensor;
  return role <= Role::kDlse ? OperandKind::kRowSums : OperandKind::kFactors;
}

// One operand of a problem.
struct OperandSpec {
  Role role = Role::kQ;
  const char* name = "";       // in messages
  Dtype dtype = Dtype::kFp32;  // of factors: of the tensor that they belong to
  int64_t batch = 0, rows = 0, heads = 0, columns = 1;
  bool transposed = false;    // [batch, heads, columns, rows], contiguous in rows
  bool written = false;       // else read
  bool optional = false;      // may be null
  int block = 0;              // of factors: rows that share one; 0: all
  int heads_per_factor = 1;   // of factors that attune makes itself, for measuring
  bool added_to = false;      // of one that is written: what stands there counts
  bool rows_at_most = false;  // rows of requests end to end, of which a call may have fewer

  OperandSpec of_packed(bool packed) const {
    OperandSpec operand = *this;
    operand.rows_at_most = packed;
    return operand;
  }

  // Strides step over `lines` of `line` contiguous elements.
  int64_t lines() const { return transposed ? columns : rows; }
  int64_t line() const { return transposed ? rows : columns; }
  int64_t least_rows() const { return rows_at_most && rows > 0 ? 1 : rows; }
  bool empty() const { return batch == 0 || rows == 0 || columns == 0; }
  // Of factors: whether the tensor that they belong to has any.
  bool has_factors() const { return is_8_bit(dtype) || !optional; }
  int64_t blocks() const { return block > 0 ? (rows + block - 1) / block : 1; }
};

// The operands of a problem in the order of a call, each role once. A plan keeps them, so that its runs
// only walk them.
class OperandList {
 public:
  OperandList() = default;
  OperandList(std::initializer_list<OperandSpec> operands) {
    for (const OperandSpec& operand : operands) add(operand);
  }
  void add(const OperandSpec& operand) {
    operands_.at(static_cast<size_t>(size_++)) = operand;
    roles_ |= 1u << static_cast<int>(operand.role);
  }
  bool empty() const { return size_ == 0; }
  bool has(Role role) const { return (roles_ >> static_cast<int>(role) & 1) != 0; }
  const OperandSpec* begin() const { return operands_.data(); }
  const OperandSpec* end() const { return operands_.data() + size_; }

 private:
  std::array<OperandSpec, kNumRoles> operands_;
  int size_ = 0;
  unsigned roles_ = 0;
};

struct OpDescription {
  Op op;
  std::string name;   // "prefill"
  std::string alias;  // read as the name, never written; empty: none
  // Checks what this op asks of its problems beyond what validate(Problem) asks of all. Throws
  // kInvalidArgument or kUnsupported.
  void (*validate)(const Problem& problem);
  OperandList (*operands)(const Problem& problem);
  // Floating-point operations that the result needs; 0: the op is bound by memory alone.
  double (*useful_flops)(const Problem& problem);
  // Its results tell of the programs as they are, so none becomes a built-in feature (recognised_programs.hpp).
  bool keeps_programs = false;
  // Its problems say which gradients are asked (Problem::gradients).
  bool has_gradients = false;
  bool has_dropout = false;  // its problems may have it
  // Its k and v are a cache of requests (templates/shared/cache_args.h): calls say where each has its keys, and how many.
  bool has_cache = false;
  bool appends = false;  // calls bring rows for that cache (templates/shared/append_args.h)
  // Bytes that a call must read and write; null: those of all operands.
  double (*useful_bytes)(const Problem& problem) = nullptr;
};

const std::vector<const OpDescription*>& all_ops();
// Adds an op from elsewhere (of a test), which must stay alive. To be called before anything else.
void add_op(const OpDescription& op);
// Throws kInvalidArgument for a value that no op has, given as `argument`.
const OpDescription& describe(Op op, const char* argument = "op");

OperandList operands_of(const Problem& problem);
double useful_flops(const Problem& problem);
// Bytes of all tensors, each once, or what the op says of itself.
double operand_bytes(const Problem& problem);

}  // namespace attune
