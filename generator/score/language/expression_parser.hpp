// SPDX-License-Identifier: Apache-2.0
// Parses expressions of the score language: precedence, names, literals, calls, loads. Statements
// are parsed in parse.cpp, types are checked in typed_operations.hpp.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "generator/score/language/typed_operations.hpp"

namespace attune::score {

class ExpressionParser {
 public:
  // Adds `declarations` to the builder.
  ExpressionParser(const Snippet& snippet, Kind kind, const Declarations& declarations,
                   Builder* builder);
  Expression expression();
  const TypedOperations& operations() const { return operations_; }

  const Token& token(size_t ahead = 0) const;
  bool is_next(std::string_view text) const { return token().text == text; }
  Token take();
  bool take_if(std::string_view text);
  void expect(std::string_view text, std::string_view where);
  [[noreturn]] void fail(size_t offset, const std::string& message) const {
    snippet_.fail(offset, message);
  }

  // Adds a name to the current block. Refuses a name already in use.
  void declare(const Token& name, int node);
  size_t num_locals() const { return local_names_.size(); }
  void forget_locals(size_t keep);

  // Counts one nesting level of the text per living object. Refuses more than kMaxNesting.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser* parser);
    ~Nesting() { --parser_->nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser* parser_;
  };

  // Return, per declaration in order, true if the text uses it.
  const std::vector<bool>& used_captures() const { return used_captures_; }
  const std::vector<bool>& used_scalars() const { return used_scalars_; }

 private:
  Expression binary(int lowest);
  Expression unary();
  Expression primary();
  bool take_cast(Token* cast);
  Expression literal(const Token& token, bool is_negated);
  Expression float_literal(const Token& token);
  Expression word(const Token& token);
  Expression load(const Token& token, size_t capture);
  Expression call(const Token& token);
  [[noreturn]] void fail_unknown(const Token& token) const;

  const Snippet& snippet_;
  Kind kind_;
  const Declarations& declarations_;
  Builder& builder_;
  TypedOperations operations_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::map<std::string_view, int> locals_;
  std::vector<std::string_view> local_names_;
  std::vector<bool> used_captures_;
  std::vector<bool> used_scalars_;
};

// True if the word belongs to the language and cannot be declared.
bool is_reserved(std::string_view word);
// True for "float", "int" and "bool".
bool is_type(std::string_view word);
Type type_called(std::string_view word);

}  // namespace attune::score
