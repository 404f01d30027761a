// SPDX-License-Identifier: Apache-2.0
// Writes nodes as C expressions, with only necessary parentheses. The canonical text and the
// generated source use it with different spellings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/score/language/program.hpp"

namespace attune::score {

// Precedence classes, the strongest first.
enum class Binds : uint8_t {
  kAtom,
  kSign,  // - ! ~, negative constants
  kProduct,
  kSum,
  kShift,
  kOrder,
  kEquality,
  kBits,
  kAnd,
  kOr,
  kChoice
};

// `text` is a function's name for kAtom, a prefix for kSign, empty for kChoice, and an operator
// otherwise.
struct NodeSpelling {
  std::string text;
  Binds binds = Binds::kAtom;
};

// Returns C's spelling of an operator, and the language's name of a function. Not for leaves and
// loads.
NodeSpelling c_spelling(Operation operation);

class ExpressionWriter {
 public:
  explicit ExpressionWriter(const Program& program)
      : program_(program), names_(program.nodes().size()) {}
  virtual ~ExpressionWriter() = default;
  // Writes the node as `name` from now on. "" restores the node's own text.
  void bind(int node, std::string name) { names_[static_cast<size_t>(node)] = std::move(name); }
  std::string text_of(int node) const;

 protected:
  virtual std::string leaf(const Node& node) const = 0;  // a name, scalar or non-float constant
  virtual std::string load(const Node& node, const std::vector<std::string>& indices) const = 0;
  virtual std::string infinity() const = 0;
  virtual std::string_view float_suffix() const = 0;
  virtual NodeSpelling spelling(const Node& node, Type operands) const = 0;
  const Node& node(int number) const { return program_.nodes()[static_cast<size_t>(number)]; }

 private:
  std::string float_constant(float value) const;
  std::string operand(const Node& parent, Binds binds, int place) const;
  Binds binds(int number) const;
  NodeSpelling spelling_of(const Node& node) const;
  std::string written(const Node& node) const;

  const Program& program_;
  std::vector<std::string> names_;
};

// Returns the nodes among `here` that need a name, because they are used more than once or nested
// too deeply. Leaves need none. `is_named` marks nodes that already have one.
std::vector<bool> nodes_to_name(const Program& program, const std::vector<bool>& here,
                                const std::vector<bool>& is_named);

}  // namespace attune::score
