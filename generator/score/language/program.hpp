// SPDX-License-Identifier: Apache-2.0
// A score program: an immutable DAG of typed nodes that changes a score or decides whether a key is
// visible. Programs are parsed from text (parse.hpp), composed from others (below), evaluated
// (evaluate.hpp) and printed (canonical_text, source_text.hpp).
//
// Nodes are canonical: equal subexpressions are one node, constants are folded, and locals are
// replaced by their values. Their order is that of a walk from the root, operands first, left to
// right. Two programs with equal trees are equal, even if their texts differ.
//
// Values: a float is fp32 in kernels and float64 in evaluate(). An int has 32 bits in two's
// complement. Sums, differences, products and shifts wrap; a shift counts modulo 32. Quotients
// truncate, and a quotient or remainder by zero is 0. Conversions to int truncate, saturate, and
// give 0 for NaN. Constants neither wrap nor saturate: parse() refuses int(1e10) and 40 +
// 2147483647, which no int can hold. Both operands of && and ||, and both values of ?:, are
// computed, since nothing has side effects. It is undefined which operand min, max and clamp return
// if one is NaN.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "templates/shared/score_args.h"

namespace attune::score {

enum class Type : uint8_t { kBool = 0, kInt = 1, kFloat = 2 };  // frozen: part of digests
// A score program returns the new score (float). A mask program returns true (bool) for a visible
// key.
enum class Kind : uint8_t { kScore = 0, kMask = 1 };

const char* type_name(Type type);  // "bool", "int", "float"
// Returns the type of a load: float for the float types, bool for kBool, else int.
Type type_of(CaptureType type);

// A tensor that a program reads as name[i][j].., or as `name` if its rank is 0.
struct Capture {
  std::string name;
  CaptureType type = CaptureType::kFp32;
  int rank = 0;
  bool operator==(const Capture&) const = default;
};

// A number that the call gives at launch.
struct Scalar {
  std::string name;
  Type type = Type::kFloat;
  bool operator==(const Scalar&) const = default;
};

struct Declarations {
  std::vector<Capture> captures;  // at most kMaxDeclared
  std::vector<Scalar> scalars;    // at most kMaxDeclared
};

inline constexpr int kMaxDeclared = 64;
inline constexpr int kMaxNodes = 4096;

// Frozen: part of digests.
enum class Name : uint8_t {
  kScore = 0,  // scaled, in natural units; only in score programs
  kBatch = 1,
  kHead = 2,  // of q
  kKvHead = 3,
  kQIdx = 4,  // positions
  kKvIdx = 5,
  kSeqlenQ = 6,
  kSeqlenKv = 7,
  kHeadDim = 8,
  // Only in programs printed for kernels that process keys in steps (rewrites.hpp). No text
  // contains it.
  kScoreUnit = 9,
};
inline constexpr int kNumNames = 9;  // names in texts
const char* name_text(Name name);    // "q_idx"

// Operands have the node's type unless noted. Frozen: part of digests. New operations go to the
// end.
enum class Operation : uint8_t {
  kConstant = 0,  // value
  kName = 1,      // index: a Name
  kScalar = 2,    // index: into scalars()
  kLoad = 3,      // index: into captures(); operands: one int for each dimension
  kToFloat = 4,   // of int or bool
  kToInt = 5,     // of float or bool
  kNegate = 6,
  kAdd = 7,
  kSubtract = 8,
  kMultiply = 9,
  kDivide = 10,
  kRemainder = 11,    // int
  kFloorDivide = 12,  // int
  kFloorModulo = 13,  // int
  kBitAnd = 14,       // int
  kBitOr = 15,        // int
  kBitXor = 16,       // int
  kBitNot = 17,       // int
  kShiftLeft = 18,    // int
  kShiftRight = 19,   // int; keeps the sign
  kLess = 20,         // bool of two ints or two floats
  kLessEqual = 21,    // bool of two ints or two floats
  kEqual = 22,        // bool of two of one type
  kNotEqual = 23,     // bool of two of one type
  kNot = 24,          // bool
  kAnd = 25,          // bool
  kOr = 26,           // bool
  kSelect = 27,       // bool, a, b: a where the first holds, else b
  kAbs = 28,          // int or float
  kMin = 29,          // int or float
  kMax = 30,          // int or float
  kClamp = 31,        // value, low, high: min(max(value, low), high)
  kFloor = 32,        // from here on float
  kSqrt = 33,
  kRsqrt = 34,
  kExp = 35,
  kExp2 = 36,
  kLog = 37,
  kLog2 = 38,
  kTanh = 39,
  kSigmoid = 40,
};
inline constexpr int kNumOperations = 41;

struct Node {
  Operation operation = Operation::kConstant;
  Type type = Type::kFloat;
  uint8_t num_operands = 0;
  int32_t index = 0;                     // for kName, kScalar, kLoad
  uint32_t bits = 0;                     // for kConstant: an fp32, an int or 0 / 1
  std::array<int32_t, 4> operands = {};  // earlier nodes; 0 past num_operands
  bool operator==(const Node&) const = default;

  float float_value() const;  // for constants
  int32_t int_value() const;  // for constants; 0 or 1 for a bool
};

// The declaration of a used capture or scalar. Parts of a composed program are numbered from 0,
// left to right.
struct Origin {
  int part = 0;
  int place = 0;  // in that program's Declarations
};

// The places in ScoreArgs of a program's captures and scalars. Empty: the program's own order.
struct Places {
  std::vector<int> captures;
  std::vector<int> scalars;
};
inline int place_of(int number, const std::vector<int>& places) {
  return places.empty() ? number : places[static_cast<size_t>(number)];
}

class Program {
 public:
  Kind kind() const { return kind_; }
  const std::vector<Node>& nodes() const {
    return nodes_;
  }  // operands before their users; the root is last
  int root() const { return static_cast<int>(nodes_.size()) - 1; }
  // The captures and scalars that the program uses, in the order of first use. At most
  // kMaxScoreCaptures and kMaxScoreScalars.
  const std::vector<Capture>& captures() const { return captures_; }
  const std::vector<Scalar>& scalars() const { return scalars_; }
  const std::vector<Origin>& capture_origins() const { return capture_origins_; }
  const std::vector<Origin>& scalar_origins() const { return scalar_origins_; }
  int parts() const {
    return parts_;
  }  // programs that it was composed of; 1 for one that was parsed
  // Compares nodes, and captures and scalars with their names. Ignores where they were declared.
  bool operator==(const Program& other) const;

 private:
  friend class Builder;
  Kind kind_ = Kind::kScore;
  std::vector<Node> nodes_;
  std::vector<Capture> captures_;
  std::vector<Scalar> scalars_;
  std::vector<Origin> capture_origins_;
  std::vector<Origin> scalar_origins_;
  int parts_ = 1;
};

// Returns the program that returns the score unchanged.
Program identity();
// Returns `second` applied to the result of `first`. In this and the functions below, captures and
// scalars of equal name remain separate: the later one gets the suffix "_2" (or "_3" ...). Throws
// kInvalidArgument if the result has more than kMaxNodes nodes, or too many captures or scalars.
Program chain(const Program& first, const Program& second);
// Returns the score if the mask holds, else -infinity.
Program hide(const Program& score, const Program& mask);
// Returns the mask of keys that are visible in both masks.
Program both(const Program& first, const Program& second);

// Returns the canonical text: without comments, with the names of captures and scalars. Nodes that
// are used twice or nested deeply become locals v0, v1 ... The text parses to an equal program,
// given the same captures and scalars.
std::string canonical_text(const Program& program);

// Returns a digest of the program's computation, as 32 hex digits: language version, kind, nodes,
// type and rank of each capture, type of each scalar. Names of captures and scalars are excluded.
std::string digest(const Program& program);

}  // namespace attune::score
