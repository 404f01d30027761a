// SPDX-License-Identifier: Apache-2.0
// Merges equal nodes, folds constants and orders nodes; see builder.hpp.
#include "generator/score/language/builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "generator/core/system/error.hpp"
#include "generator/score/language/evaluate.hpp"

namespace attune::score {
namespace {

// The limit for all nodes of a builder, including those that the root does not need.
constexpr size_t kMaxMade = size_t{16} * kMaxNodes;

Node constant_node(Type type, uint32_t bits) {
  Node node;
  node.type = type;
  node.bits = bits;
  return node;
}

Node leaf(Operation operation, Type type, int index) {
  Node node;
  node.operation = operation;
  node.type = type;
  node.index = index;
  return node;
}

template <class Named>
bool has_name(const std::vector<Named>& all, const std::string& name) {
  return std::any_of(all.begin(), all.end(), [&](const Named& one) { return one.name == name; });
}

}  // namespace

size_t Builder::Hash::operator()(const Node& node) const {
  uint64_t hash = static_cast<uint64_t>(node.operation) << 8 | static_cast<uint64_t>(node.type);
  const auto mix = [&](uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  };
  mix(static_cast<uint32_t>(node.index));
  mix(node.bits);
  for (const int32_t operand : node.operands) mix(static_cast<uint32_t>(operand));
  return static_cast<size_t>(hash);
}

int Builder::add(const Node& node) {
  const auto [at, is_new] = numbers_.try_emplace(node, static_cast<int>(nodes_.size()));
  if (!is_new) return at->second;
  if (nodes_.size() >= kMaxMade)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has far more than {} nodes", name_, kMaxNodes));
  nodes_.push_back(node);
  return at->second;
}

int Builder::constant(float value) {
  return add(constant_node(Type::kFloat, std::bit_cast<uint32_t>(value)));
}
int Builder::constant(int32_t value) {
  return add(constant_node(Type::kInt, static_cast<uint32_t>(value)));
}
int Builder::constant(bool value) { return add(constant_node(Type::kBool, value ? 1 : 0)); }

int Builder::name(Name name) {
  const bool is_float = name == Name::kScore || name == Name::kScoreUnit;
  const Type type = is_float ? Type::kFloat : Type::kInt;
  return add(leaf(Operation::kName, type, static_cast<int>(name)));
}

std::string Builder::free_name(const std::string& name) const {
  std::string free = name;
  for (int i = 2; has_name(captures_, free) || has_name(scalars_, free); ++i)
    free = fmt::format("{}_{}", name, i);
  return free;
}

int Builder::add_capture(const Capture& capture, Origin origin) {
  captures_.push_back({free_name(capture.name), capture.type, capture.rank});
  capture_origins_.push_back(origin);
  return static_cast<int>(captures_.size()) - 1;
}

int Builder::add_scalar(const Scalar& scalar, Origin origin) {
  scalars_.push_back({free_name(scalar.name), scalar.type});
  scalar_origins_.push_back(origin);
  return static_cast<int>(scalars_.size()) - 1;
}

int Builder::scalar(int number) {
  return add(leaf(Operation::kScalar, scalars_[static_cast<size_t>(number)].type, number));
}

int Builder::load(int capture, std::span<const int> indices) {
  Node node =
      leaf(Operation::kLoad, type_of(captures_[static_cast<size_t>(capture)].type), capture);
  node.num_operands = static_cast<uint8_t>(indices.size());
  std::copy(indices.begin(), indices.end(), node.operands.begin());
  return add(node);
}

int Builder::make(Operation operation, Type type, std::initializer_list<int> operands) {
  Node node;
  node.operation = operation;
  node.type = type;
  node.num_operands = static_cast<uint8_t>(operands.size());
  std::copy(operands.begin(), operands.end(), node.operands.begin());
  if (const std::optional<int> same = simplified(node)) return *same;
  if (const std::optional<int> same = compared_with_constant(node)) return *same;
  if (const std::optional<bool> always = self_comparison(node)) return constant(*always);
  if (const std::optional<Node> value = folded(node)) return add(*value);
  return add(node);
}

// Simplifies the comparison of a bool with a constant to the bool or its negation.
std::optional<int> Builder::compared_with_constant(const Node& n) {
  const bool is_equality = n.operation == Operation::kEqual || n.operation == Operation::kNotEqual;
  if (!is_equality || node(n.operands[0]).type != Type::kBool) return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (!is_constant(n.operands[i])) continue;
    const bool keeps = (node(n.operands[i]).int_value() != 0) == (n.operation == Operation::kEqual);
    return keeps ? n.operands[1 - i] : negate_condition(n.operands[1 - i]);
  }
  return std::nullopt;
}

// Applies only exact simplifications, each of which a second pass would leave unchanged.
std::optional<int> Builder::simplified(const Node& n) const {
  const int a = n.operands[0], b = n.operands[1], c = n.operands[2];
  switch (n.operation) {
    case Operation::kNot:
    case Operation::kNegate:
      if (node(a).operation == n.operation) return node(a).operands[0];
      return std::nullopt;
    case Operation::kAnd:
    case Operation::kOr: {
      const int32_t decides = n.operation == Operation::kOr ? 1 : 0;
      if (a == b) return a;
      if (is_constant(a)) return node(a).int_value() == decides ? a : b;
      if (is_constant(b)) return node(b).int_value() == decides ? b : a;
      return std::nullopt;
    }
    case Operation::kSelect:
      if (b == c) return b;
      if (is_constant(a)) return node(a).int_value() != 0 ? b : c;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// Returns the result of comparing a node with itself; nullopt for floats, which may be NaN.
std::optional<bool> Builder::self_comparison(const Node& n) const {
  if (n.num_operands != 2 || n.operands[0] != n.operands[1] ||
      node(n.operands[0]).type == Type::kFloat)
    return std::nullopt;
  switch (n.operation) {
    case Operation::kEqual:
    case Operation::kLessEqual:
      return true;
    case Operation::kNotEqual:
    case Operation::kLess:
      return false;
    default:
      return std::nullopt;
  }
}

// Folds an operation on constants to a constant. Keeps the operation if its result is an infinity
// or NaN, which the text does not contain.
std::optional<Node> Builder::folded(const Node& n) const {
  Value values[4] = {};
  for (int i = 0; i < n.num_operands; ++i) {
    const Node& operand = node(n.operands[static_cast<size_t>(i)]);
    if (operand.operation != Operation::kConstant) return std::nullopt;
    values[i] = value_of_constant(operand);
  }
  const Value value = compute(n.operation, node(n.operands[0]).type, values);
  if (n.type != Type::kFloat) return constant_node(n.type, static_cast<uint32_t>(value.integer));
  const float rounded = static_cast<float>(value.real);
  if (!std::isfinite(rounded) && n.operation != Operation::kNegate) return std::nullopt;
  return constant_node(Type::kFloat, std::bit_cast<uint32_t>(rounded));
}

int Builder::import(const Program& program, const Rewrite& rewrite, std::vector<int>* numbers) {
  std::vector<int> captures, scalars, own;
  std::vector<int>& here = numbers != nullptr ? *numbers : own;
  for (size_t i = 0; i < program.captures().size(); ++i) {
    const Origin& from = program.capture_origins()[i];
    captures.push_back(
        add_capture(program.captures()[i], {from.part + imported_parts_, from.place}));
  }
  for (size_t i = 0; i < program.scalars().size(); ++i) {
    const Origin& from = program.scalar_origins()[i];
    scalars.push_back(add_scalar(program.scalars()[i], {from.part + imported_parts_, from.place}));
  }
  imported_parts_ += program.parts();
  for (const Node& node : program.nodes()) {
    int o[4] = {};
    for (size_t i = 0; i < node.num_operands; ++i)
      o[i] = here[static_cast<size_t>(node.operands[i])];
    const std::span<const int> operands(o, node.num_operands);
    std::optional<int> number;
    if (rewrite) number = rewrite(static_cast<int>(here.size()), operands);
    if (number) {
    } else if (node.operation == Operation::kLoad) {
      number = load(captures[static_cast<size_t>(node.index)], operands);
    } else if (node.operation == Operation::kScalar) {
      number = scalar(scalars[static_cast<size_t>(node.index)]);
    } else if (node.num_operands == 0) {
      number = add(node);
    } else if (node.num_operands == 1) {
      number = make(node.operation, node.type, {o[0]});
    } else if (node.num_operands == 2) {
      number = make(node.operation, node.type, {o[0], o[1]});
    } else {
      number = make(node.operation, node.type, {o[0], o[1], o[2]});
    }
    here.push_back(*number);
  }
  return here.back();
}

// Returns the nodes that the root needs, operands first, left to right.
std::vector<int> Builder::order_from(int root) const {
  std::vector<int> order;
  std::vector<bool> is_done(nodes_.size());
  std::vector<std::pair<int, int>> path{{root, 0}};  // a node and its next operand
  while (!path.empty()) {
    auto& [number, next] = path.back();
    if (next < node(number).num_operands) {
      const int operand = node(number).operands[static_cast<size_t>(next++)];
      if (!is_done[static_cast<size_t>(operand)]) path.emplace_back(operand, 0);
      continue;
    }
    if (!is_done[static_cast<size_t>(number)]) order.push_back(number);
    is_done[static_cast<size_t>(number)] = true;
    path.pop_back();
  }
  return order;
}

// Numbers captures and scalars in the order of their first use.
void Builder::number_operands(Program* program) const {
  std::vector<int> captures(captures_.size(), -1), scalars(scalars_.size(), -1);
  for (Node& node : program->nodes_) {
    if (node.operation != Operation::kLoad && node.operation != Operation::kScalar) continue;
    const bool is_load = node.operation == Operation::kLoad;
    const size_t old = static_cast<size_t>(node.index);
    int& number = is_load ? captures[old] : scalars[old];
    if (number < 0 && is_load) {
      number = static_cast<int>(program->captures_.size());
      program->captures_.push_back(captures_[old]);
      program->capture_origins_.push_back(capture_origins_[old]);
    } else if (number < 0) {
      number = static_cast<int>(program->scalars_.size());
      program->scalars_.push_back(scalars_[old]);
      program->scalar_origins_.push_back(scalar_origins_[old]);
    }
    node.index = number;
  }
}

Program Builder::finish(int root, int most_nodes) const {
  Program program;
  program.kind_ = node(root).type == Type::kBool ? Kind::kMask : Kind::kScore;
  program.parts_ = std::max(imported_parts_, 1);
  std::vector<int> places(nodes_.size());
  for (const int number : order_from(root)) {
    Node node = this->node(number);
    for (size_t i = 0; i < node.num_operands; ++i)
      node.operands[i] = places[static_cast<size_t>(node.operands[i])];
    places[static_cast<size_t>(number)] = static_cast<int>(program.nodes_.size());
    program.nodes_.push_back(node);
  }
  number_operands(&program);
  const auto limit = [&](size_t count, int most, const char* what) {
    if (count > static_cast<size_t>(most))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has {} {}; must be at most {}", name_, count, what, most));
  };
  limit(program.nodes_.size(), most_nodes, "nodes");
  limit(program.captures_.size(), kMaxScoreCaptures, "captures in use");
  limit(program.scalars_.size(), kMaxScoreScalars, "scalars in use");
  return program;
}

}  // namespace attune::score
