// SPDX-License-Identifier: Apache-2.0
// Parses statements of the score language and checks declarations; see parse.hpp. A chain of ifs
// becomes an ordered list of conditions with their return values, and a final value.
#include "generator/score/language/parse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "generator/core/system/error.hpp"
#include "generator/core/system/foreign_text.hpp"
#include "generator/score/language/expression_parser.hpp"

namespace attune::score {
namespace {

[[noreturn]] void refuse(std::string_view name, const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, message));
}

bool is_identifier(std::string_view word) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !word.empty() && is_letter(word[0]) && std::all_of(word.begin(), word.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

void check(const Declarations& declarations, std::string_view name) {
  const auto check_count = [&](size_t count, const char* what) {
    if (count > static_cast<size_t>(kMaxDeclared))
      refuse(name,
             fmt::format("{} {} are declared; must be at most {}", count, what, kMaxDeclared));
  };
  check_count(declarations.captures.size(), "captures");
  check_count(declarations.scalars.size(), "scalars");
  std::set<std::string_view> names;
  const auto check_name = [&](const char* what, const std::string& word) {
    if (!is_identifier(word) || is_reserved(word))
      refuse(name, fmt::format("a {} is called \"{}\"; must be letters, digits and _, and not a "
                               "word of the language",
                               what, word));
    if (!names.insert(word).second) refuse(name, fmt::format("\"{}\" is declared twice", word));
  };
  for (const Capture& capture : declarations.captures) {
    check_name("capture", capture.name);
    if (capture.rank < 0 || capture.rank > kMaxCaptureRank)
      refuse(name, fmt::format("capture {} has rank {}; must be 0 to {}", capture.name,
                               capture.rank, kMaxCaptureRank));
    if (capture.type < CaptureType::kFp32 || capture.type > CaptureType::kBool)
      refuse(name,
             fmt::format("capture {} has type {}; must be 0 to {}", capture.name,
                         static_cast<int>(capture.type), static_cast<int>(CaptureType::kBool)));
  }
  for (const Scalar& scalar : declarations.scalars) check_name("scalar", scalar.name);
}

// The effect of a list of statements: they return the value of the first guard whose condition
// holds, else `last`. If `last` is -1, control continues after the statements.
struct Guard {
  int condition;
  int value;
};
struct Flow {
  std::vector<Guard> guards;
  int last = -1;
};

class StatementParser {
 public:
  StatementParser(const Snippet& snippet, Kind kind, const Declarations& declarations,
                  Builder* builder)
      : kind_(kind), builder_(*builder), in_(snippet, kind, declarations, builder) {}
  const ExpressionParser& expressions() const { return in_; }
  int program();

 private:
  Flow statements(std::string_view end);
  Flow branch();
  Flow conditional();
  void declaration();
  int returned();
  void add(Flow* flow, int condition, const Flow& more);

  Kind kind_;
  Builder& builder_;
  ExpressionParser in_;
};

// Parses statements up to the token `end`, which is not consumed: "}" for a block, "" for the whole
// text.
Flow StatementParser::statements(std::string_view end) {
  Flow flow;
  while (!(in_.token().kind == TokenKind::kEnd || (!end.empty() && in_.is_next(end)))) {
    if (flow.last >= 0)
      in_.fail(in_.token().offset, "this is never reached, because all paths before it return");
    if (in_.is_next("return")) {
      flow.last = returned();
    } else if (in_.is_next("if")) {
      const Flow chain = conditional();
      flow.guards.insert(flow.guards.end(), chain.guards.begin(), chain.guards.end());
      flow.last = chain.last;
    } else if (in_.is_next("const") || is_type(in_.token().text)) {
      declaration();
    } else {
      in_.fail(in_.token().offset,
               fmt::format("'{}' found where a declaration, if or return is expected",
                           in_.token().text));
    }
  }
  return flow;
}

void StatementParser::declaration() {
  in_.take_if("const");
  const Token type = in_.take();
  if (!is_type(type.text))
    in_.fail(type.offset,
             fmt::format("'{}' found where float, int or bool is expected", type.text));
  const Token name = in_.take();
  in_.expect("=", "in a declaration");
  const int value = in_.operations().converted(in_.expression(), type_called(type.text),
                                               fmt::format("the value of '{}'", name.text));
  in_.expect(";", "after a declaration");
  in_.declare(name, value);
}

int StatementParser::returned() {
  in_.take();
  const int value = kind_ == Kind::kScore
                        ? in_.operations().converted(in_.expression(), Type::kFloat,
                                                     "the result of a score program")
                        : in_.operations().converted(in_.expression(), Type::kBool,
                                                     "the result of a mask program");
  in_.expect(";", "after a returned value");
  return value;
}

// Parses the statement or block of an if or else.
Flow StatementParser::branch() {
  const ExpressionParser::Nesting nesting(&in_);
  const Token start = in_.token();
  Flow flow;
  if (in_.take_if("{")) {
    const size_t locals = in_.num_locals();
    flow = statements("}");
    in_.forget_locals(locals);
    in_.expect("}", "after a block");
  } else if (in_.is_next("if")) {
    flow = conditional();
  } else if (in_.is_next("return")) {
    flow.last = returned();
  } else {
    in_.fail(start.offset, fmt::format("'{}' found where a branch returns a value", start.text));
  }
  if (flow.last < 0 && flow.guards.empty()) in_.fail(start.offset, "this branch returns no value");
  return flow;
}

// Appends `more` under a condition; -1: without a condition.
void StatementParser::add(Flow* flow, int condition, const Flow& more) {
  const auto under = [&](int inner) {
    return condition < 0 ? inner : builder_.both(condition, inner);
  };
  for (const Guard& guard : more.guards)
    flow->guards.push_back({under(guard.condition), guard.value});
  if (more.last >= 0 && condition < 0)
    flow->last = more.last;
  else if (more.last >= 0)
    flow->guards.push_back({condition, more.last});
}

Flow StatementParser::conditional() {
  Flow flow;
  // The condition that no earlier branch was taken; -1 after a branch that always returns
  int before = -1;
  for (;;) {
    in_.expect("if", "");
    in_.expect("(", "after if");
    const Expression condition = in_.expression();
    in_.operations().require(condition, Type::kBool, "a condition");
    in_.expect(")", "after a condition");
    const Flow taken = branch();
    const int holds = before < 0 ? condition.node : builder_.both(before, condition.node);
    add(&flow, holds, taken);
    if (taken.last < 0) {
      const int fails = builder_.negate_condition(condition.node);
      before = before < 0 ? fails : builder_.both(before, fails);
    }
    if (!in_.take_if("else")) return flow;
    if (!in_.is_next("if")) break;
  }
  add(&flow, before, branch());
  return flow;
}

int StatementParser::program() {
  const Flow flow = statements("");
  const size_t end = in_.token().offset;
  if (flow.last < 0)
    in_.fail(end, flow.guards.empty() ? "no value is returned"
                                      : "no value is returned if all conditions are false");
  int value = flow.last;
  for (auto guard = flow.guards.rbegin(); guard != flow.guards.rend(); ++guard)
    value = builder_.select(guard->condition, guard->value, value);
  return value;
}

template <class Named>
void warn_of_unused(const char* what, const std::vector<Named>& all, const std::vector<bool>& used,
                    std::string_view name, std::vector<std::string>* warnings) {
  for (size_t i = 0; i < all.size(); ++i)
    if (!used[i])
      warnings->push_back(
          fmt::format("{}: {} {} is declared and not used", name, what, all[i].name));
}

}  // namespace

Program parse(std::string_view text, Kind kind, const Declarations& declarations,
              std::string_view name, std::vector<std::string>* warnings) {
  check(declarations, name);
  if (text.size() > kMaxTextBytes)
    refuse(name,
           fmt::format("the text has {} bytes; must be at most {}", text.size(), kMaxTextBytes));
  if (const size_t end = utf8_end(text); end < text.size())
    refuse(name, fmt::format("byte {} of the text is {:#04x}; the text must be UTF-8", end,
                             static_cast<unsigned char>(text[end])));
  const Snippet snippet(name, text);
  Builder builder{std::string(name)};
  StatementParser parser(snippet, kind, declarations, &builder);
  Program program = builder.finish(parser.program());
  if (warnings != nullptr) {
    const ExpressionParser& expressions = parser.expressions();
    warn_of_unused("capture", declarations.captures, expressions.used_captures(), name, warnings);
    warn_of_unused("scalar", declarations.scalars, expressions.used_scalars(), name, warnings);
  }
  return program;
}

}  // namespace attune::score
