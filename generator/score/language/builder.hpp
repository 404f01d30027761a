// SPDX-License-Identifier: Apache-2.0
// Makes programs: merges equal nodes, folds constants, and orders the nodes that the root needs.
// Used by the parser, by the composition of programs and by rewriting passes.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "generator/score/language/program.hpp"

namespace attune::score {

// Refers to nodes by number. Operands must have the types that Operation requires, which the parser
// checks.
class Builder {
 public:
  // `name` begins error messages: "score_mod".
  explicit Builder(std::string name) : name_(std::move(name)) {}

  int constant(float value);
  int constant(int32_t value);
  int constant(bool value);
  int name(Name name);
  // Captures and scalars are numbered in the order of these calls. A name already in use gets the
  // suffix "_2" (or "_3" ...).
  int add_capture(const Capture& capture, Origin origin);
  int add_scalar(const Scalar& scalar, Origin origin);
  int scalar(int number);
  int load(int capture, std::span<const int> indices);
  // Returns the node, or a simpler node with the same value: a constant, or one of the operands.
  // `type` is the result's type.
  int make(Operation operation, Type type, std::initializer_list<int> operands);
  int negate_condition(int condition) { return make(Operation::kNot, Type::kBool, {condition}); }
  int both(int a, int b) { return make(Operation::kAnd, Type::kBool, {a, b}); }
  int select(int condition, int a, int b) {
    return make(Operation::kSelect, node(a).type, {condition, a, b});
  }

  const Node& node(int number) const { return nodes_[static_cast<size_t>(number)]; }
  bool is_constant(int number) const { return node(number).operation == Operation::kConstant; }

  // Adds a program's nodes, captures and scalars, and returns its root's number in this builder.
  // `rewrite` may replace a node. Its arguments are the node's number in `program` and the
  // operands' numbers in this builder.
  using Rewrite = std::function<std::optional<int>(int there, std::span<const int> operands)>;
  // `numbers` receives the number in this builder of each node of `program`, in order.
  int import(const Program& program, const Rewrite& rewrite = nullptr,
             std::vector<int>* numbers = nullptr);

  // Throws kInvalidArgument if the program is too large.
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
