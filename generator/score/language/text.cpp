// SPDX-License-Identifier: Apache-2.0
// Canonical text and digest; see program.hpp.
#include "generator/score/language/program.hpp"

#include <fmt/format.h>

#include <set>

#include "generator/core/system/digest.hpp"
#include "generator/score/language/expression_writer.hpp"
#include "generator/score/language/parse.hpp"

namespace attune::score {
namespace {

class CanonicalWriter : public ExpressionWriter {
 public:
  explicit CanonicalWriter(const Program& program) : ExpressionWriter(program), program_(program) {}

 protected:
  std::string leaf(const Node& n) const override {
    if (n.operation == Operation::kName) return name_text(static_cast<Name>(n.index));
    if (n.operation == Operation::kScalar)
      return program_.scalars()[static_cast<size_t>(n.index)].name;
    if (n.type == Type::kBool) return n.int_value() != 0 ? "true" : "false";
    return std::to_string(n.int_value());
  }
  std::string load(const Node& n, const std::vector<std::string>& indices) const override {
    std::string text = program_.captures()[static_cast<size_t>(n.index)].name;
    for (const std::string& index : indices) text += "[" + index + "]";
    return text;
  }
  std::string infinity() const override { return "INFINITY"; }
  std::string_view float_suffix() const override { return ""; }
  NodeSpelling spelling(const Node& n, Type) const override { return c_spelling(n.operation); }

 private:
  const Program& program_;
};

}  // namespace

std::string canonical_text(const Program& program) {
  std::set<std::string> taken;
  for (const Capture& capture : program.captures()) taken.insert(capture.name);
  for (const Scalar& scalar : program.scalars()) taken.insert(scalar.name);
  CanonicalWriter writer(program);
  const std::vector<Node>& nodes = program.nodes();
  const std::vector<bool> needs_name = nodes_to_name(program, std::vector<bool>(nodes.size(), true),
                                                     std::vector<bool>(nodes.size(), false));
  std::string text;
  int next = 0;
  for (int i = 0; i < program.root(); ++i) {
    if (!needs_name[static_cast<size_t>(i)]) continue;
    std::string name;
    do name = "v" + std::to_string(next++);
    while (taken.count(name) != 0);
    text += fmt::format("{} {} = {};\n", type_name(nodes[static_cast<size_t>(i)].type), name,
                        writer.text_of(i));
    writer.bind(i, name);
  }
  return text + "return " + writer.text_of(program.root()) + ";\n";
}

std::string digest(const Program& program) {
  std::string text =
      fmt::format("score language {}\n{}\n", kLanguageVersion, static_cast<int>(program.kind()));
  for (const Capture& capture : program.captures())
    text += fmt::format("capture {} {}\n", static_cast<int>(capture.type), capture.rank);
  for (const Scalar& scalar : program.scalars())
    text += fmt::format("scalar {}\n", static_cast<int>(scalar.type));
  for (const Node& node : program.nodes()) {
    text += fmt::format("{} {} {} {}", static_cast<int>(node.operation),
                        static_cast<int>(node.type), node.index, node.bits);
    for (size_t i = 0; i < node.num_operands; ++i) text += fmt::format(" {}", node.operands[i]);
    text += '\n';
  }
  return xxh3_128_hex(text);
}

}  // namespace attune::score
