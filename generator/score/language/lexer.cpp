// SPDX-License-Identifier: Apache-2.0
// Reads the tokens of a snippet; see lexer.hpp.
#include "generator/score/language/lexer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/system/error.hpp"

namespace attune::score {
namespace {

constexpr size_t kShownColumns = 100;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c); }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The longest first. The second row has C operators that the language lacks.
constexpr std::string_view kSigns[] = {
    "<<=", ">>=", "...", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",  //
    "++",  "--",  "+=",  "-=", "*=", "/=", "%=", "&=", "|=", "^=", "->", "::",
    "+",   "-",   "*",   "/",  "%",  "<",  ">",  "!",  "&",  "|",  "^",  "~",
    "?",   ":",   "(",   ")",  "[",  "]",  "{",  "}",  ";",  ",",  "="};
constexpr std::string_view kRefused[] = {
    "<<=", ">>=", "...", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "->", "::"};

}  // namespace

void Snippet::fail(size_t offset, const std::string& message) const {
  const std::string_view before = text_.substr(0, offset);
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const size_t end = std::min(text_.find('\n', start), text_.size());
  const size_t column = offset - start;
  const size_t shown = column > kShownColumns ? column - kShownColumns / 2 : 0;
  std::string piece(text_.substr(start + shown, std::min(end - start - shown, kShownColumns)));
  std::string caret;
  for (char& c : piece) {  // control characters and non-ASCII bytes would move the caret
    if (c != '\t' && (c < ' ' || c > '~')) c = '?';
    if (caret.size() < column - shown) caret += c == '\t' ? '\t' : ' ';
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}:{}:{}: {}\n  {}\n  {}^", name_, line,
                                                       column + 1, message, piece, caret));
}

size_t Snippet::skip_blanks(size_t at) const {
  while (at < text_.size()) {
    if (is_blank(text_[at])) {
      ++at;
    } else if (text_.substr(at, 2) == "//") {
      at = std::min(text_.find('\n', at), text_.size());
    } else if (text_.substr(at, 2) == "/*") {
      const size_t end = text_.find("*/", at + 2);
      if (end == std::string_view::npos) fail(at, "this comment has no end");
      at = end + 2;
    } else {
      break;
    }
  }
  return at;
}

// Reads digits, an optional point, exponent and suffix f.
Token Snippet::number_at(size_t at) const {
  size_t end = at;
  bool is_float = false;
  const auto digits = [&] {
    while (end < text_.size() && is_digit(text_[end])) ++end;
  };
  if (text_.substr(at, 2) == "0x" || text_.substr(at, 2) == "0X") {
    end = at + 2;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return {TokenKind::kInt, text_.substr(at, end - at), at};
  }
  digits();
  if (end < text_.size() && text_[end] == '.') {
    is_float = true;
    ++end;
    digits();
  }
  if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
    is_float = true;
    ++end;
    if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
    digits();
  }
  if (is_float && end < text_.size() && (text_[end] == 'f' || text_[end] == 'F')) ++end;
  while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.'))
    ++end;  // so that the message quotes the whole sign
  return {is_float ? TokenKind::kFloat : TokenKind::kInt, text_.substr(at, end - at), at};
}

Token Snippet::sign_at(size_t at) const {
  for (const std::string_view sign : kSigns) {
    if (sign[0] != text_[at] || text_.substr(at, sign.size()) != sign) continue;
    if (std::find(std::begin(kRefused), std::end(kRefused), sign) != std::end(kRefused))
      fail(at, fmt::format("'{}' is not in the language", sign));
    return {TokenKind::kSign, text_.substr(at, sign.size()), at};
  }
  const char c = text_[at];
  if (c > ' ' && c <= '~') fail(at, fmt::format("'{}' is not in the language", c));
  fail(at, fmt::format("a character of code {} is not in the language",
                       static_cast<int>(static_cast<unsigned char>(c))));
}

std::vector<Token> Snippet::tokens() const {
  std::vector<Token> tokens;
  size_t at = skip_blanks(0);
  while (at < text_.size()) {
    const char c = text_[at];
    Token token{TokenKind::kWord, {}, at};
    if (is_letter(c)) {
      size_t end = at;
      while (end < text_.size() && is_word(text_[end])) ++end;
      token.text = text_.substr(at, end - at);
    } else if (is_digit(c) || (c == '.' && at + 1 < text_.size() && is_digit(text_[at + 1]))) {
      token = number_at(at);
    } else {
      token = sign_at(at);
    }
    tokens.push_back(token);
    at = skip_blanks(at + token.text.size());
  }
  tokens.push_back({TokenKind::kEnd, {}, text_.size()});
  return tokens;
}

}  // namespace attune::score
