// SPDX-License-Identifier: Apache-2.0
// Splits a snippet into tokens, and makes error messages that point into it. Used by the parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attune::score {

enum class TokenKind : uint8_t { kWord, kInt, kFloat, kSign, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // "" at the end
  size_t offset = 0;
};

class Snippet {
 public:
  Snippet(std::string_view name, std::string_view text) : name_(name), text_(text) {}
  // Throws kInvalidArgument: "name:line:column: message", then the line, then a caret below the
  // column.
  [[noreturn]] void fail(size_t offset, const std::string& message) const;
  // Returns the tokens; the last one is kEnd. Throws for operators that the language lacks.
  std::vector<Token> tokens() const;

 private:
  size_t skip_blanks(size_t at) const;
  Token number_at(size_t at) const;
  Token sign_at(size_t at) const;

  std::string_view name_;
  std::string_view text_;
};

}  // namespace attune::score
