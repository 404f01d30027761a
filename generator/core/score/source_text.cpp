// SPDX-License-Identifier: Apache-2.0
// A program as C++ of kernels; see source_text.hpp.
#include "generator/core/score/source_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "generator/core/score/builder.hpp"
#include "generator/core/score/dependence.hpp"
#include "generator/core/score/expression_writer.hpp"

namespace attune::score {
namespace {

constexpr std::string_view kCaptureTypeNames[] = {"kFp32",  "kBf16",  "kFp16", "kInt32",
                                                  "kInt64", "kUint8", "kBool"};

// What C++ leaves undefined for some ints is a function; so is what would branch, and what the language calls a function.
NodeSpelling kernel_spelling(Operation operation, Type operands) {
  struct Row {
    Operation operation;
    Type operands;
    const char* function;
  };
  constexpr Row kRows[] = {{Operation::kNegate, Type::kInt, "score_negate"},
                           {Operation::kAdd, Type::kInt, "score_add"},
                           {Operation::kSubtract, Type::kInt, "score_subtract"},
                           {Operation::kMultiply, Type::kInt, "score_multiply"},
                           {Operation::kDivide, Type::kInt, "score_div"},
                           {Operation::kRemainder, Type::kInt, "score_mod"},
                           {Operation::kShiftLeft, Type::kInt, "score_shift_left"},
                           {Operation::kShiftRight, Type::kInt, "score_shift_right"},
                           {Operation::kToInt, Type::kFloat, "score_int"},
                           {Operation::kAnd, Type::kBool, "score_and"},
                           {Operation::kOr, Type::kBool, "score_or"}};
  for (const Row& row : kRows)
    if (row.operation == operation && row.operands == operands) return {row.function, Binds::kAtom};
  const NodeSpelling in_c = c_spelling(operation);
  if (operation == Operation::kSelect) return {"score_select", Binds::kAtom};
  const bool is_function = in_c.binds == Binds::kAtom && operation > Operation::kToInt;
  return is_function ? NodeSpelling{"score_" + in_c.text, Binds::kAtom} : in_c;
}

class KernelWriter : public ExpressionWriter {
 public:
  KernelWriter(const Program& program, const Places& places)
      : ExpressionWriter(program),
        program_(program),
        places_(places),
        addresses_(program.nodes().size()) {}

  // The line of a load: all its indices but the last.
  std::string line_address(int load) const {
    const Node& n = program_.nodes()[static_cast<size_t>(load)];
    std::string text = fmt::format("capture_line<CaptureType::{}>(args.captures[{}]",
                                   type_of_capture(n), capture(n));
    for (size_t i = 0; i + 1 < n.num_operands; ++i) text += ", " + text_of(n.operands[i]);
    return text + ")";
  }
  void bind_address(int load, std::string text) {
    addresses_[static_cast<size_t>(load)] = std::move(text);
  }

 protected:
  std::string leaf(const Node& n) const override {
    if (n.operation == Operation::kName) {
      const Name name = static_cast<Name>(n.index);
      return std::string(name >= Name::kSeqlenQ ? "args." : "") + name_text(name);
    }
    if (n.operation == Operation::kScalar) return scalar(n.index);
    if (n.type == Type::kBool) return n.int_value() != 0 ? "true" : "false";
    const int32_t value = n.int_value();
    return value == INT32_MIN ? "(-2147483647 - 1)" : std::to_string(value);
  }
  std::string load(const Node& n, const std::vector<std::string>& indices) const override {
    const std::string& address = addresses_[static_cast<size_t>(&n - program_.nodes().data())];
    if (!address.empty())
      return fmt::format("load_in_line<CaptureType::{}>({}, args.captures[{}], {}, {})",
                         type_of_capture(n), address, capture(n), indices.size() - 1,
                         indices.back());
    std::string text = fmt::format("load_capture<CaptureType::{}>(args.captures[{}]",
                                   type_of_capture(n), capture(n));
    for (const std::string& index : indices) text += ", " + index;
    return text + ")";
  }
  std::string infinity() const override { return "score_infinity()"; }
  std::string_view float_suffix() const override { return "f"; }
  NodeSpelling spelling(const Node& n, Type operands) const override {
    return kernel_spelling(n.operation, operands);
  }

 private:
  int capture(const Node& load) const { return place_of(load.index, places_.captures); }
  std::string scalar(int number) const {
    const int place = place_of(number, places_.scalars);
    switch (program_.scalars()[static_cast<size_t>(number)].type) {
      case Type::kFloat:
        return fmt::format("args.scalars[{}].f32", place);
      case Type::kInt:
        return fmt::format("args.scalars[{}].i32", place);
      case Type::kBool:
        break;
    }
    return fmt::format("(args.scalars[{}].i32 != 0)", place);
  }
  std::string_view type_of_capture(const Node& load) const {
    const Capture& capture = program_.captures()[static_cast<size_t>(load.index)];
    return kCaptureTypeNames[static_cast<size_t>(capture.type)];
  }

  const Program& program_;
  const Places& places_;
  std::vector<std::string> addresses_;  // of loads: where its line is, if that is known
};

// a / b as a * (1 / b) where b changes less often than a.
Program with_reciprocals(const Program& program) {
  const std::vector<Dependences> dependences = dependences_of(program);
  const auto level = [&](int node) { return level_of(dependences[static_cast<size_t>(node)]); };
  Builder builder("the printed program");
  return builder.finish(
      builder.import(program, [&](int there, std::span<const int> here) -> std::optional<int> {
        const Node& node = program.nodes()[static_cast<size_t>(there)];
        if (node.operation != Operation::kDivide || node.type != Type::kFloat ||
            level(node.operands[1]) >= level(there))
          return std::nullopt;
        const int reciprocal =
            builder.make(Operation::kDivide, Type::kFloat, {builder.constant(1.0F), here[1]});
        if (builder.is_constant(here[1]) &&
            (!builder.is_constant(reciprocal) ||
             !std::isnormal(builder.node(reciprocal).float_value())))
          return std::nullopt;
        return builder.make(Operation::kMultiply, Type::kFloat, {here[0], reciprocal});
      }));
}

// Names of a score program's functions in the text of a mask program.
std::string as_mask(std::string text) {
  for (const auto& [from, to] : {std::pair{"Score", "Mask"}, std::pair{"score_", "mask_"}})
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; ++at)
      if (text.compare(at, 9, "ScoreArgs") != 0) text.replace(at, std::strlen(from), to);
  return text;
}

struct Function {
  const char* returns;
  const char* name;
  const char* member_prefix;  // how its members are called elsewhere
  const char* parameters;
};

// By level, from kHead on.
constexpr Function kFunctions[] = {
    {"ScoreHead", "score_head", "on_head.",
     "const ScoreArgs& args, int batch, int head, int kv_head"},
    {"ScoreRow", "score_row", "on_row.",
     "const ScoreArgs& args, const ScoreHead& on_head, int batch, int head, int kv_head, int "
     "q_idx"},
    {"ScoreColumn", "score_column", "on_column.",
     "const ScoreArgs& args, const ScoreHead& on_head, int batch, int head, int kv_head, int "
     "kv_idx"},
    {"float", "score_element", "",
     "const ScoreArgs& args, const ScoreHead& on_head, const ScoreRow& on_row, const ScoreColumn& "
     "on_column,\n"
     "    float score, int batch, int head, int kv_head, int q_idx, int kv_idx"}};
constexpr size_t kColumn = 2, kElement = 3;
constexpr const char* kMaskParameters =  // of the last one
    "const ScoreArgs& args, const ScoreHead& on_head, const ScoreRow& on_row, const ScoreColumn& "
    "on_column,\n"
    "    int batch, int head, int kv_head, int q_idx, int kv_idx";

class SourcePrinter {
 public:
  SourcePrinter(const Program& program, const Places& places);
  std::string text();

 private:
  bool is_leaf(int node) const;
  bool is_trivial(int node) const;
  void place_nodes();
  void place_lines();
  std::string structs() const;
  std::string function(size_t level);
  const std::vector<Node>& nodes() const { return program_.nodes(); }

  // As it stands in the text: those of a mask program are called after it.
  std::string named(std::string text) const {
    return program_.kind() == Kind::kMask ? as_mask(std::move(text)) : text;
  }

  Program program_;
  Places places_;
  KernelWriter writer_;
  std::vector<size_t>
      level_;  // of each node an index of kFunctions; a trivial one is written where it is used
  std::vector<bool> is_inline_;  // trivial
  std::vector<bool> is_member_;
  std::vector<std::string> names_;  // of members: v0, v1..
  // Of loads whose indices but the last are of a lower level: that level, where the address of its line is a member. Else kElement.
  std::vector<size_t> line_level_;
  std::vector<std::string> line_names_;  // a0, a1..
  int next_name_ = 0;
  int next_line_ = 0;
};

SourcePrinter::SourcePrinter(const Program& program, const Places& places)
    : program_(program), places_(places), writer_(program_, places_) {
  place_nodes();
}

bool SourcePrinter::is_leaf(int number) const {
  const Node& n = nodes()[static_cast<size_t>(number)];
  return n.num_operands == 0 && n.operation != Operation::kLoad;
}

// A leaf, or a sum or difference of two of which one is a constant, a scalar or a length.
bool SourcePrinter::is_trivial(int number) const {
  const Node& n = nodes()[static_cast<size_t>(number)];
  if (n.num_operands == 0) return is_leaf(number);
  if (n.operation != Operation::kAdd && n.operation != Operation::kSubtract) return false;
  const auto is_constant = [&](int i) {
    const Node& leaf = nodes()[static_cast<size_t>(i)];
    return leaf.operation != Operation::kName || leaf.index >= static_cast<int>(Name::kSeqlenQ);
  };
  const int a = n.operands[0], b = n.operands[1];
  return is_leaf(a) && is_leaf(b) && (is_constant(a) || is_constant(b));
}

void SourcePrinter::place_lines() {
  line_level_.assign(nodes().size(), kElement);
  line_names_.resize(nodes().size());
  for (size_t i = 0; i < nodes().size(); ++i) {
    const Node& n = nodes()[i];
    if (n.operation != Operation::kLoad || n.num_operands < 2) continue;
    size_t highest = 0;
    for (size_t o = 0; o + 1 < n.num_operands; ++o)
      highest = std::max(highest, level_[static_cast<size_t>(n.operands[o])]);
    if (highest < level_[i] && highest != kColumn) line_level_[i] = highest;
  }
}

void SourcePrinter::place_nodes() {
  const size_t count = nodes().size();
  const std::vector<Dependences> dependences = dependences_of(program_);
  is_member_.resize(count);
  names_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Level level = level_of(dependences[i]);
    level_.push_back(level == Level::kConstant ? 0 : static_cast<size_t>(level) - 1);
    is_inline_.push_back(is_trivial(static_cast<int>(i)));
  }
  place_lines();
  const auto use = [&](size_t node, size_t by_level) {
    if (!is_inline_[node] && level_[node] != by_level) is_member_[node] = true;
  };
  for (size_t i = 0; i < count; ++i)
    for (size_t o = 0; !is_inline_[i] && o < nodes()[i].num_operands; ++o)
      use(static_cast<size_t>(nodes()[i].operands[o]),
          line_level_[i] != kElement && o + 1 < nodes()[i].num_operands ? line_level_[i]
                                                                        : level_[i]);
  use(count - 1, kElement);
}

std::string SourcePrinter::function(size_t level) {
  const Function& f = kFunctions[level];
  std::vector<bool> here(nodes().size());
  for (size_t i = 0; i < here.size(); ++i) here[i] = level_[i] == level && !is_inline_[i];
  const std::vector<bool> needs_name = nodes_to_name(program_, here, is_member_);
  std::string body;
  for (size_t i = 0; i < here.size(); ++i) {
    if (!here[i] || !(needs_name[i] || is_member_[i])) continue;
    const int node = static_cast<int>(i);
    if (level == kElement && node == program_.root()) continue;
    const std::string name = "v" + std::to_string(next_name_++);
    const std::string value = writer_.text_of(node);
    body += is_member_[i]
                ? fmt::format("  values.{} = {};\n", name, value)
                : fmt::format("  const {} {} = {};\n", type_name(nodes()[i].type), name, value);
    writer_.bind(node, (is_member_[i] ? "values." : "") + name);
    names_[i] = name;
  }
  for (size_t i = 0; level != kElement && i < here.size(); ++i) {
    if (line_level_[i] != level) continue;
    line_names_[i] = "a" + std::to_string(next_line_++);
    body += fmt::format("  values.{} = {};\n", line_names_[i],
                        writer_.line_address(static_cast<int>(i)));
  }
  if (level == kElement) {
    body += "  return " + writer_.text_of(program_.root()) + ";\n";
  } else {
    body = fmt::format("  {} values{{}};\n{}  return values;\n", named(f.returns), body);
  }
  for (size_t i = 0; i < here.size(); ++i)
    if (here[i] && is_member_[i]) writer_.bind(static_cast<int>(i), f.member_prefix + names_[i]);
  for (size_t i = 0; level != kElement && i < here.size(); ++i)
    if (line_level_[i] == level)
      writer_.bind_address(static_cast<int>(i), f.member_prefix + line_names_[i]);
  const bool of_mask = program_.kind() == Kind::kMask && level == kElement;
  return named(fmt::format("ATTUNE_SCORE_FUNCTION {} {}({}) {{\n", of_mask ? "bool" : f.returns,
                           f.name, of_mask ? kMaskParameters : f.parameters)) +
         body + "}\n";
}

std::string SourcePrinter::structs() const {
  std::string text;
  for (size_t level = 0; level < kElement; ++level) {
    text += fmt::format("struct {} {{", named(kFunctions[level].returns));
    for (size_t i = 0; i < names_.size(); ++i)
      if (is_member_[i] && level_[i] == level)
        text += fmt::format(" {} {};", type_name(nodes()[i].type), names_[i]);
    for (size_t i = 0; i < names_.size(); ++i)
      if (line_level_[i] == level) text += fmt::format(" const void* {};", line_names_[i]);
    text += text.back() == '{' ? "};\n" : " };\n";
  }
  return text;
}

std::string SourcePrinter::text() {
  std::string functions;
  for (size_t level = 0; level <= kElement; ++level) functions += "\n" + function(level);
  bool reads_columns = false;
  for (size_t i = 0; i < names_.size(); ++i)
    reads_columns = reads_columns || (is_member_[i] && kFunctions[level_[i]].returns ==
                                                           std::string_view("ScoreColumn"));
  if (program_.kind() == Kind::kMask) return structs() + functions;
  return structs() + functions +
         fmt::format(
             "\nconstexpr bool kScoreReadsColumns = {};\nconstexpr bool kScoreHides = {};\n",
             reads_columns, may_hide(program_));
}

}  // namespace

std::string source_text(const Program& program, const Places& places) {
  if (program.kind() == Kind::kMask) return source_text(hide(identity(), program), places);
  return SourcePrinter(with_reciprocals(program), places).text();
}

std::string mask_source_text(const Program& program, const Places& places) {
  return SourcePrinter(with_reciprocals(program), places).text();
}

}  // namespace attune::score
