// SPDX-License-Identifier: Apache-2.0
// OpDescription: all facts about an op except its kernels and its reference: name, valid problems,
// operands, useful work. Each op has a file in ops/; other code reads these facts and does not test
// for a particular op. tuner/oracles/ computes the expected results.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem/problem.hpp"

namespace attune {

// The operand slots of a call: fields of attune_operands (attune.h). Each op uses some of them.
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
  kOScale,
  kKGroups,  // tensors of the factors of groups of columns, attune_operands.cache
  kVGroups
};
inline constexpr int kNumRoles = 21;

// The slots of tensors, then the slots of scale factors with their names in messages.
inline constexpr Role kTensorRoles[] = {Role::kQ,       Role::kK,       Role::kV,      Role::kO,
                                        Role::kDout,    Role::kDq,      Role::kDk,     Role::kDv,
                                        Role::kDscores, Role::kNewK,    Role::kNewV,   Role::kCos,
                                        Role::kSin,     Role::kKGroups, Role::kVGroups};
struct FactorRole {
  Role role;
  const char* name;
};
inline constexpr FactorRole kFactorRoles[] = {{Role::kQScale, "q_scale"},
                                              {Role::kKScale, "k_scale"},
                                              {Role::kVScale, "v_scale"},
                                              {Role::kOScale, "o_scale"}};

// The addressing of an operand, which its role determines.
enum class OperandKind {
  kTensor,   // elements [batch, rows, heads, columns] with three strides
  kRowSums,  // fp32 [batch, heads, rows] with two strides, both 0 where contiguous
  kFactors,  // fp32 [batch, heads, blocks of rows] of an 8-bit or 4-bit tensor
};
constexpr OperandKind kind_of(Role role) {
  if (role <= Role::kSin || role >= Role::kKGroups) return OperandKind::kTensor;
  return role <= Role::kDlse ? OperandKind::kRowSums : OperandKind::kFactors;
}

// Alignment in bytes of the addresses of tensors, and of their strides in dimensions longer than 1.
inline constexpr int kOperandAlignment = 16;

// One operand of a problem.
struct OperandSpec {
  Role role = Role::kQ;
  const char* name = "";       // in messages
  Dtype dtype = Dtype::kFp32;  // for factors: the type of their tensor
  int64_t batch = 0, rows = 0, heads = 0, columns = 1;
  bool transposed = false;    // [batch, heads, columns, rows], contiguous in rows
  bool written = false;       // else read
  bool optional = false;      // may be null
  int block = 0;              // for factors: rows that share one factor; 0: all rows
  int heads_per_factor = 1;   // heads that share one factor, in operands made for timing
  bool added_to = false;      // for a written operand: results are added to its contents
  bool rows_at_most = false;  // packed requests: a call may have fewer rows
  int64_t most_number = -1;   // for factors that are int32 numbers, from 0 to this one; -1: floats
  bool by_head = false;       // rows of a head are adjacent where contiguous
  int alignment = kOperandAlignment;  // of tensors

  OperandSpec of_packed(bool packed) const {
    OperandSpec operand = *this;
    operand.rows_at_most = packed;
    return operand;
  }

  // An operand consists of `lines` pieces of `line` contiguous elements; strides step between
  // pieces.
  int64_t lines() const { return transposed ? columns : rows; }
  int64_t line() const { return transposed ? rows : columns; }
  int64_t least_rows() const { return rows_at_most && rows > 0 ? 1 : rows; }
  bool empty() const { return batch == 0 || rows == 0 || columns == 0; }
  // True if the operand's tensor has scale factors. Only for operands of kind kFactors.
  bool has_factors() const { return is_narrow(dtype) || !optional || most_number >= 0; }
  int64_t blocks() const { return block > 0 ? (rows + block - 1) / block : 1; }
};

// The operands of a problem in the order of a call, each role once. A plan builds the list once,
// and each run iterates over it.
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
  std::string alias;  // a second name that parse_op reads; empty if none
  // Checks the rules of this op, beyond those that validate(Problem) checks for all ops. Throws
  // kInvalidArgument or kUnsupported.
  void (*validate)(const Problem& problem);
  OperandList (*operands)(const Problem& problem);
  // Floating-point operations that the result needs; 0: the op is bound by memory alone.
  double (*useful_flops)(const Problem& problem);
  // True if results depend on programs as written. Then no program may become a built-in feature
  // (features.hpp).
  bool keeps_programs = false;
  // True if problems say which gradients to compute (Problem::gradients).
  bool has_gradients = false;
  bool has_dropout = false;     // problems may have dropout
  bool has_max_logits = false;  // problems may ask for the largest logit of each head
  // True if k and v are a cache of requests (templates/shared/cache_args.h). A call then gives the
  // location and number of each request's keys.
  bool has_cache = false;
  // True if rows may name their keys (Problem::key_indices), and V may be in K (v_in_k).
  bool takes_lists = false;
  bool makes_lists = false;  // o consists of lists of listed_keys keys
  bool has_head_dim = true;  // false: texts need no head_dim
  bool appends = false;      // calls bring new rows for the cache (templates/shared/append_args.h)
  // Returns the bytes that a call must read and write. Null: all operands count once.
  double (*useful_bytes)(const Problem& problem) = nullptr;
};

const std::vector<const OpDescription*>& all_ops();
// Adds an op from outside ops/, such as a test's. It must stay alive. Must be called before any
// other function of the library.
void add_op(const OpDescription& op);
// Throws kInvalidArgument for a value that is not an op; the message names `argument`.
const OpDescription& describe(Op op, const char* argument = "op");

OperandList operands_of(const Problem& problem);
double useful_flops(const Problem& problem);
// Returns the bytes of all tensors, each counted once, or the result of the op's useful_bytes.
double operand_bytes(const Problem& problem);

}  // namespace attune
