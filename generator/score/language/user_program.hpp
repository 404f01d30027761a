// SPDX-License-Identifier: Apache-2.0
// Programs of the score language (parse.hpp) that callers give. A spec refers to a program by
// its digest. The process keeps all programs, so that kernels, references and the oracle can look
// them up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/score/language/program.hpp"

namespace attune {

// Digest of a program's computation and of the names of its captures and scalars, which calls use.
// All 0 means no program.
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
      // canonical, with declarations in front: read_user_program(text, kind) gives this program
      text;
  // The text as the caller gave it, after the declarations that it lacks. Parses to the same
  // program.
  std::string source;
  std::string nodes;  // a line per node: operation, type, index, bits and operands, as numbers
  std::vector<std::string> warnings;
};

// Adds a program to the process, or returns the equal program that it already has. `name` begins
// error messages. Throws the errors of score::parse.
const UserProgram& add_user_program(std::string_view text, score::Kind kind,
                                    const score::Declarations& declarations, std::string_view name);
// Adds a program that was composed of others.
const UserProgram& add_user_program(const score::Program& program);
// Adds a program whose text has its declarations.
const UserProgram& read_user_program(std::string_view text, score::Kind kind,
                                     std::string_view name);
// Adds the program of a text file.
const UserProgram& load_user_program(const std::string& path, score::Kind kind);
// Returns null if this process has no program with this digest.
const UserProgram* find_user_program(const ProgramDigest& digest);
// Returns the program. Throws kInvalidArgument, with `field`, if the process does not have it or it
// is of the other kind.
const UserProgram& user_program(const ProgramDigest& digest, score::Kind kind, const char* field);

// Returns the declarations in comment lines of a program's text, one per line:
//   // capture slopes: fp32[1]
//   // scalar window: int
// Throws kInvalidArgument for a declaration that cannot be parsed.
score::Declarations declarations_in(std::string_view text, std::string_view name);

}  // namespace attune
