// SPDX-License-Identifier: Apache-2.0
// Programs of the score language (score/parse.hpp) that callers give. A spec names one by its digest; the process keeps what it was
// given, so that kernels, references and the oracle of a spec find it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/score/program.hpp"

namespace attune {

// Of what a program does, and of the names of its captures and scalars, by which calls give them. All 0: no program.
struct ProgramDigest {
  uint64_t high = 0;
  uint64_t low = 0;

  explicit operator bool() const { return high != 0 || low != 0; }
  bool operator==(const ProgramDigest&) const = default;
};
std::string to_text(const ProgramDigest& digest);  // "none", or 32 hex digits
ProgramDigest parse_program_digest(std::string_view text);

struct UserProgram {
  ProgramDigest digest;
  score::Program program;
  std::string
      text;  // canonical, its declarations in front: read_user_program(text, kind) gives this program again
  // As it was given first, with comments and names of locals; declarations that came beside it stand in front. It gives this program
  // again, too.
  std::string source;
  std::string nodes;  // a line each: operation, type, index, bits and operands, as numbers
  std::vector<std::string> warnings;
};

// Keeps it until the process ends; the same program twice is one. `name` opens messages. Throws what score::parse throws.
const UserProgram& add_user_program(std::string_view text, score::Kind kind,
                                    const score::Declarations& declarations, std::string_view name);
// One that was made of others.
const UserProgram& add_user_program(const score::Program& program);
// With the declarations that stand in the text.
const UserProgram& read_user_program(std::string_view text, score::Kind kind,
                                     std::string_view name);
// Of a text file.
const UserProgram& load_user_program(const std::string& path, score::Kind kind);
// Null where this process was given no such program.
const UserProgram* find_user_program(const ProgramDigest& digest);
// Throws kInvalidArgument with a sentence that names `field` where no such program was given, or one of the other kind.
const UserProgram& user_program(const ProgramDigest& digest, score::Kind kind, const char* field);

// The declarations that stand as comments of their own in front of a program's text, one a line:
//   // capture slopes: fp32[1]
//   // scalar window: int
// Throws kInvalidArgument for such a line that cannot be read.
score::Declarations declarations_in(std::string_view text, std::string_view name);

}  // namespace attune
