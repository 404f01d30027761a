// SPDX-License-Identifier: Apache-2.0
// Parses expressions by recursive descent and operator precedence; see expression_parser.hpp.
#include "generator/score/language/expression_parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "generator/score/language/parse.hpp"

namespace attune::score {
namespace {

constexpr std::string_view kKeywords[] = {"if",  "else", "return", "const", "float",
                                          "int", "bool", "true",   "false", "INFINITY"};
// C keywords with a separate error message.
constexpr std::string_view kLoops[] = {"for", "while", "do", "goto", "switch", "break", "continue"};

template <size_t kCount>
bool is_one_of(const std::string_view (&words)[kCount], std::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

// Returns the precedence, as in C; 0 if the token is not an operator.
int precedence(const Token& token) {
  if (token.kind != TokenKind::kSign) return 0;
  constexpr std::string_view kRows[][4] = {
      {"||"},       {"&&"},     {"|"},          {"^"}, {"&"}, {"==", "!="}, {"<", "<=", ">", ">="},
      {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}};
  int row = 1;
  for (const auto& signs : kRows) {
    if (is_one_of(signs, token.text)) return row;
    ++row;
  }
  return 0;
}

std::optional<Name> name_called(std::string_view word) {
  for (int i = 0; i < kNumNames; ++i)
    if (word == name_text(static_cast<Name>(i))) return static_cast<Name>(i);
  return std::nullopt;
}

template <class Named>
std::optional<size_t> place_of(const std::vector<Named>& all, std::string_view name) {
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return i;
  return std::nullopt;
}

template <class Named>
std::string list_of(const char* what, const std::vector<Named>& all) {
  std::string list;
  for (const Named& one : all) list += (list.empty() ? "" : ", ") + one.name;
  return all.empty() ? "" : fmt::format("; {} are {}", what, list);
}

}  // namespace

bool is_type(std::string_view word) { return word == "float" || word == "int" || word == "bool"; }

Type type_called(std::string_view word) {
  return word == "float" ? Type::kFloat : word == "int" ? Type::kInt : Type::kBool;
}

bool is_reserved(std::string_view word) {
  return is_one_of(kKeywords, word) || is_one_of(kLoops, word) || is_function(word) ||
         name_called(word).has_value();
}

ExpressionParser::ExpressionParser(const Snippet& snippet, Kind kind,
                                   const Declarations& declarations, Builder* builder)
    : snippet_(snippet),
      kind_(kind),
      declarations_(declarations),
      builder_(*builder),
      operations_(snippet, builder),
      tokens_(snippet.tokens()),
      used_captures_(declarations.captures.size()),
      used_scalars_(declarations.scalars.size()) {
  int place = 0;
  for (const Capture& capture : declarations.captures) builder_.add_capture(capture, {0, place++});
  place = 0;
  for (const Scalar& scalar : declarations.scalars) builder_.add_scalar(scalar, {0, place++});
}

ExpressionParser::Nesting::Nesting(ExpressionParser* parser) : parser_(parser) {
  if (parser->nesting_ >= kMaxNesting)
    parser->fail(parser->token().offset,
                 fmt::format("parentheses and branches nest deeper than {} levels", kMaxNesting));
  ++parser->nesting_;
}

const Token& ExpressionParser::token(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token ExpressionParser::take() {
  const Token taken = token();
  if (at_ + 1 < tokens_.size()) ++at_;
  return taken;
}

bool ExpressionParser::take_if(std::string_view text) {
  if (!is_next(text)) return false;
  take();
  return true;
}

void ExpressionParser::expect(std::string_view text, std::string_view where) {
  if (take_if(text)) return;
  const std::string found =
      token().kind == TokenKind::kEnd ? "the text ends" : fmt::format("'{}' found", token().text);
  fail(token().offset,
       fmt::format("{} where '{}' is expected {}{}", found, text, where,
                   is_next("=") ? "; '=' assigns, which only declarations do" : ""));
}

void ExpressionParser::declare(const Token& name, int node) {
  if (name.kind != TokenKind::kWord)
    fail(name.offset, fmt::format("'{}' found where a name is expected", name.text));
  const bool is_declared = place_of(declarations_.captures, name.text).has_value() ||
                           place_of(declarations_.scalars, name.text).has_value();
  if (is_reserved(name.text) || is_declared || locals_.count(name.text) != 0)
    fail(name.offset, fmt::format("'{}' is already in use{}", name.text,
                                  is_declared ? ": a capture or scalar has this name" : ""));
  locals_.emplace(name.text, node);
  local_names_.push_back(name.text);
}

void ExpressionParser::forget_locals(size_t keep) {
  for (; local_names_.size() > keep; local_names_.pop_back()) locals_.erase(local_names_.back());
}

// Reads chained choices, a ? b : c ? d : e, without recursion.
Expression ExpressionParser::expression() {
  const Nesting nesting(this);
  std::vector<std::pair<Expression, Expression>> choices;
  Expression last = binary(1);
  while (is_next("?")) {
    take();
    choices.emplace_back(last, expression());
    expect(":", "after the first value of a choice");
    last = binary(1);
  }
  for (; !choices.empty(); choices.pop_back())
    last = operations_.conditional(choices.back().first, choices.back().second, last);
  return last;
}

Expression ExpressionParser::binary(int lowest) {
  Expression left = unary();
  for (int row = precedence(token()); row >= lowest && row > 0; row = precedence(token())) {
    const Token sign = take();
    left = operations_.binary(sign, left, binary(row + 1));
  }
  return left;
}

bool ExpressionParser::take_cast(Token* cast) {
  if (!is_next("(") || !is_type(token(1).text) || token(2).text != ")") return false;
  take();
  *cast = take();
  take();
  return true;
}

Expression ExpressionParser::unary() {
  std::vector<Token> signs;  // and casts
  for (;;) {
    Token cast;
    if (take_cast(&cast))
      signs.push_back(cast);
    else if (is_next("-") || is_next("+") || is_next("!") || is_next("~"))
      signs.push_back(take());
    else
      break;
  }
  Expression e;
  if (token().kind == TokenKind::kInt && !signs.empty() && signs.back().text == "-") {
    e = literal(take(), true);
    signs.pop_back();
  } else {
    e = primary();
  }
  for (; !signs.empty(); signs.pop_back()) {
    const Token& sign = signs.back();
    e = sign.kind == TokenKind::kWord ? operations_.cast(type_called(sign.text), e, sign.offset)
                                      : operations_.sign(sign, e);
  }
  return e;
}

Expression ExpressionParser::primary() {
  const Token token = take();
  switch (token.kind) {
    case TokenKind::kInt:
      return literal(token, false);
    case TokenKind::kFloat:
      return float_literal(token);
    case TokenKind::kWord:
      return word(token);
    case TokenKind::kEnd:
      fail(token.offset, "the text ends where a value is expected");
    case TokenKind::kSign:
      break;
  }
  if (token.text != "(")
    fail(token.offset, fmt::format("'{}' found where a value is expected", token.text));
  const Expression inner = expression();
  expect(")", "");
  return {inner.node, token.offset};
}

Expression ExpressionParser::literal(const Token& token, bool is_negated) {
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0') {
    base = 16;
    if (digits[1] != 'x' && digits[1] != 'X')
      fail(token.offset, fmt::format("'{}' is octal in C; leave out the leading zero", token.text));
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error == std::errc::invalid_argument ||
      (error == std::errc() && end != digits.data() + digits.size()))
    fail(token.offset, fmt::format("'{}' is not a valid number", token.text));
  if (is_negated) value = -value;
  if (error != std::errc() || value > std::numeric_limits<int32_t>::max() ||
      value < std::numeric_limits<int32_t>::min())
    fail(token.offset,
         fmt::format("{}{} does not fit in an int of 32 bits", is_negated ? "-" : "", token.text));
  return {builder_.constant(static_cast<int32_t>(value)), token.offset};
}

Expression ExpressionParser::float_literal(const Token& token) {
  std::string_view digits = token.text;
  if (digits.back() == 'f' || digits.back() == 'F') digits.remove_suffix(1);
  float value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range)
    fail(token.offset, fmt::format("{} does not fit in a float", token.text));
  if (error != std::errc() || end != digits.data() + digits.size())
    fail(token.offset, fmt::format("'{}' is not a valid number", token.text));
  return {builder_.constant(value), token.offset};
}

Expression ExpressionParser::word(const Token& token) {
  if (token.text == "true" || token.text == "false")
    return {builder_.constant(token.text == "true"), token.offset};
  if (token.text == "INFINITY")
    return {builder_.constant(std::numeric_limits<float>::infinity()), token.offset};
  if (is_next("(")) return call(token);
  if (const std::optional<Name> name = name_called(token.text)) {
    if (*name == Name::kScore && kind_ == Kind::kMask)
      fail(token.offset,
           "'score' is not known to a mask program, which only decides if a key is visible");
    return {builder_.name(*name), token.offset};
  }
  if (const auto local = locals_.find(token.text); local != locals_.end())
    return {local->second, token.offset};
  if (const auto place = place_of(declarations_.captures, token.text)) return load(token, *place);
  const auto place = place_of(declarations_.scalars, token.text);
  if (!place) fail_unknown(token);
  used_scalars_[*place] = true;
  return {builder_.scalar(static_cast<int>(*place)), token.offset};
}

Expression ExpressionParser::load(const Token& token, size_t capture) {
  std::vector<int> indices;
  while (take_if("[")) {
    const Expression index = expression();
    operations_.require(index, Type::kInt, "an index");
    expect("]", "after an index");
    indices.push_back(index.node);
  }
  const size_t rank = static_cast<size_t>(declarations_.captures[capture].rank);
  if (indices.size() != rank)
    fail(token.offset, fmt::format("'{}' has rank {}, so it takes {} {}, not {}", token.text, rank,
                                   rank, rank == 1 ? "index" : "indices", indices.size()));
  used_captures_[capture] = true;
  return {builder_.load(static_cast<int>(capture), indices), token.offset};
}

Expression ExpressionParser::call(const Token& token) {
  const bool is_cast = is_type(token.text);
  if (!is_cast && !is_function(token.text))
    fail(token.offset,
         fmt::format("'{}' is not a function; functions are {}", token.text, function_list()));
  take();
  std::vector<Expression> arguments;
  if (!is_next(")")) {
    do arguments.push_back(expression());
    while (take_if(","));
  }
  expect(")", "after arguments");
  if (!is_cast) return operations_.call(token, arguments);
  if (arguments.size() != 1)
    fail(token.offset, fmt::format("{} takes 1 argument, not {}", token.text, arguments.size()));
  return operations_.cast(type_called(token.text), arguments[0], token.offset);
}

void ExpressionParser::fail_unknown(const Token& token) const {
  if (is_one_of(kLoops, token.text))
    fail(token.offset, fmt::format("'{}': the language has neither loops nor jumps", token.text));
  if (is_reserved(token.text))
    fail(token.offset, fmt::format("'{}' found where a value is expected", token.text));
  fail(token.offset, fmt::format("'{}' is not declared{}{}", token.text,
                                 list_of("captures", declarations_.captures),
                                 list_of("scalars", declarations_.scalars)));
}

}  // namespace attune::score
