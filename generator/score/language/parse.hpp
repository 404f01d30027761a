// SPDX-License-Identifier: Apache-2.0
// The score language, version 1: a subset of C without side effects. A program computes one
// element, and its text is also valid C++.
//
//   float slope = slopes[head];                      // declarations with a value: float, int, bool
//   if (kv_idx > q_idx) return -INFINITY;            // if and else, whose branches return
//   return score - slope * abs(kv_idx - q_idx);
//
// | part      | contents                                                                          |
// |-----------|-----------------------------------------------------------------------------------|
// | names     | score (score programs only), batch, head, kv_head, q_idx, kv_idx, seqlen_q,       |
// |           | seqlen_kv, head_dim, INFINITY                                                     |
// | captures  | name[i][j].. with as many ints as the rank; scalars by name                       |
// | types     | float, int (32 bits), bool; int converts to float, else write float() or int()    |
// | operators | + - * / % < <= > >= == != && || ! & | ^ ~ << >> ?: ( ), as in C; casts;           |
// |           | & | ^ also of two bools                                                           |
// | functions | abs min max clamp(x, low, high) floor floordiv floormod sqrt rsqrt exp exp2 log   |
// |           | log2 tanh sigmoid float() int() select(condition, a, b)                           |
// | returns   | a score program float, a mask program bool, on every path                         |
//
// seqlen_q and seqlen_kv are the numbers of rows and keys in the call. With documents, they count
// the rows and keys of all documents, like q_idx and kv_idx. For op attention_kvcache both are the
// request's numbers, even if a page table or a plan has room for more. q_idx is then a position
// among the request's keys: row i is at seqlen_kv - seqlen_q + i.
//
// There are no loops, assignments, pointers or calls of other functions. So each program ends,
// writes nothing and reads only declared values. program.hpp defines the arithmetic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/score/language/program.hpp"

namespace attune::score {

inline constexpr int kLanguageVersion = 1;
inline constexpr size_t kMaxTextBytes = size_t{1} << 20;
inline constexpr int kMaxNesting = 200;  // for parentheses, signs, branches

// `name` begins error messages, such as "score_mod:2:31: 'slops' is not declared; captures are
// slopes, table". The line and a caret follow. `warnings` receives a sentence per unused capture or
// scalar. Throws kInvalidArgument for a text outside the language, more than kMaxDeclared captures,
// a name declared twice, a reserved name, or a rank outside 0 to 4.
Program parse(std::string_view text, Kind kind, const Declarations& declarations,
              std::string_view name, std::vector<std::string>* warnings = nullptr);

}  // namespace attune::score
