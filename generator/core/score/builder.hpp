// SPDX-License-Identifier: Apache-2.0
// Makes programs: gathers nodes of which equal ones are one, folds constants, and orders what the root needs. Used by the parser, by
// the composition of programs and by whoever rewrites one.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "generator/core/score/program.hpp"

namespace attune::score {

// Nodes are told by number. Operands must have the types that Operation asks for: the parser sees to that.
class Builder {
 public:
  // `name` opens messages: "score_mod".
  explicit Builder(std::string name) : name_(std::move(name)) {}

  int constant(float value);
  int constant(int32_t value);
  int constant(bool value);
  int name(Name name);
  // To be read by number, in the order of these calls. A name that is taken gets "_2" (or "_3"..) behind it.
  int add_capture(const Capture& capture, Origin origin);
  int add_scalar(const Scalar& scalar, Origin origin);
  int scalar(int number);
  int load(int capture, std::span<const int> indices);
  // The node, or what it comes to: a constant, one of its operands. `type` is that of the result.
  int make(Operation operation, Type type, std::initializer_list<int> operands);
  int negate_condition(int condition) { return make(Operation::kNot, Type::kBool, {condition}); }
  int both(int a, int b) { return make(Operation::kAnd, Type::kBool, {a, b}); }
  int select(int condition, int a, int b) {
    return make(Operation::kSelect, node(a).type, {condition, a, b});
  }

  const Node& node(int number) const { return nodes_[static_cast<size_t>(number)]; }
  bool is_constant(int number) const { return node(number).operation == Operation::kConstant; }

  // Adds a program's nodes, captures and scalars, and returns its root here. Where `rewrite` gives a node that one takes the place of
  // the program's: it is called with the number of a node there and its operands' numbers here.
  using Rewrite = std::function<std::optional<int>(int there, std::span<const int> operands)>;
  // `numbers` gets what each of the program's nodes is here, as they come.
  int import(const Program& program, const Rewrite& rewrite = nullptr,
             std::vector<int>* numbers = nullptr);

  // Throws kInvalidArgument where it is too large.
  Program finish(int root, int most_nodes = kMaxNodes) const;

 private:
  struct Hash {
    size_t operator()(const Node& node) const;
  };
  int add(const Node& node);
  std::optional<int> simplified(const Node& node) const;
  std::optional<int> compared_with_constant(const Node& node);
  std::optional<bool> self_comparison(const Node& node) const;
  std::optional<Node> folded(const Node& node) const;
  std::string free_name(const std::string& name) const;
  std::vector<int> order_from(int root) const;
  void number_operands(Program* program) const;

  std::string name_;
  std::vector<Node> nodes_;
  std::unordered_map<Node, int, Hash> numbers_;
  std::vector<Capture> captures_;
  std::vector<Scalar> scalars_;
  std::vector<Origin> capture_origins_;
  std::vector<Origin> scalar_origins_;
  int imported_parts_ = 0;
};

}  // namespace attune::score
