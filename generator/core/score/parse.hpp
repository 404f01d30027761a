// SPDX-License-Identifier: Apache-2.0
// The score language, version 1: a subset of C that states a function without effects, and so is also C++ for one element.
//
//   float slope = slopes[head];                        // declarations with a value: float, int, bool
//   if (kv_idx > q_idx) return -INFINITY;              // if and else, whose branches return
//   return score - slope * abs(kv_idx - q_idx);
//
// | part      | what there is                                                                                              |
// |-----------|------------------------------------------------------------------------------------------------------------|
// | names     | score (score programs only), batch, head, kv_head, q_idx, kv_idx, seqlen_q, seqlen_kv, head_dim, INFINITY  |
// | captures  | name[i][j].. with as many ints as the rank; scalars by name                                                |
// | types     | float, int (32 bits), bool; an int becomes a float by itself, anything else by float(..) and int(..)       |
// | operators | + - * / % < <= > >= == != && || ! & | ^ ~ << >> ?: ( ), as in C; & | ^ also of two bools; casts             |
// | functions | abs min max clamp(x, low, high) floor floordiv floormod sqrt rsqrt exp exp2 log log2 tanh sigmoid          |
// |           | float() int() select(condition, a, b)                                                                      |
// | returns   | a score program float, a mask program bool, on every path                                                  |
//
// seqlen_q and seqlen_kv are the numbers of rows and keys that the call has; rows and keys of all documents count, for q_idx and kv_idx
// number them all. Over caches (op attention_kvcache) both are the request's own, whatever room a page table or a plan has for more, and
// q_idx is a position among the request's keys: row i stands at seqlen_kv - seqlen_q + i.
//
// No loops, assignments, pointers or calls of anything else: a program ends, writes nothing and reads only what is declared. What
// values are is said in program.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/core/score/program.hpp"

namespace attune::score {

inline constexpr int kLanguageVersion = 1;
inline constexpr size_t kMaxTextBytes = size_t{1} << 20;
inline constexpr int kMaxNesting = 200;  // of parentheses, signs, branches

// `name` opens messages: "score_mod:2:31: 'slops' is not declared; captures are slopes, table", and behind it the line and a caret.
// Captures and scalars that are declared and not used are told in `warnings`, a sentence each. Throws kInvalidArgument for a text
// that is not of the language, and for declarations of more than kMaxDeclared captures, twice the same name, a name of the language or
// a rank outside of 0 to 4.
Program parse(std::string_view text, Kind kind, const Declarations& declarations,
              std::string_view name, std::vector<std::string>* warnings = nullptr);

}  // namespace attune::score
