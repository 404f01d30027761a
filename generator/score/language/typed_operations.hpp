// SPDX-License-Identifier: Apache-2.0
// Checks operators and functions of the score language: argument types, result types, and error
// messages. Used by the parser of expressions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/score/language/builder.hpp"
#include "generator/score/language/lexer.hpp"

namespace attune::score {

// A node of the builder, and the offset of its text.
struct Expression {
  int node = -1;
  size_t offset = 0;
};

class TypedOperations {
 public:
  TypedOperations(const Snippet& snippet, Builder* builder)
      : snippet_(snippet), builder_(*builder) {}
  // Converts implicitly: an int becomes a float. `what` names the expression in an error.
  int converted(const Expression& e, Type to, std::string_view what) const;
  void require(const Expression& e, Type type, std::string_view what) const;
  Expression cast(Type to, const Expression& a, size_t offset) const;
  Expression sign(const Token& sign, const Expression& a) const;  // - + ! ~
  Expression binary(const Token& sign, const Expression& a, const Expression& b) const;
  Expression conditional(const Expression& condition, Expression a, Expression b) const;
  Expression call(const Token& function, const std::vector<Expression>& arguments) const;

 private:
  Expression logical(const Token& sign, const Expression& a, const Expression& b) const;
  Expression bitwise(const Token& sign, const Expression& a, const Expression& b) const;
  Expression comparison(const Token& sign, Expression a, Expression b) const;
  Expression arithmetic(const Token& sign, Expression a, Expression b) const;
  int call_of_numbers(const Token& function, Operation operation,
                      std::vector<Expression> numbers) const;
  void balance(std::span<Expression> numbers) const;
  void refuse_overflow(Operation operation, std::span<const Expression> operands,
                       size_t offset) const;
  Type type(const Expression& e) const { return builder_.node(e.node).type; }

  const Snippet& snippet_;
  Builder& builder_;
};

bool is_function(std::string_view word);
std::string function_list();  // "abs, min, .."

}  // namespace attune::score
