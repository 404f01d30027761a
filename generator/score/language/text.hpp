// SPDX-License-Identifier: Apache-2.0
// Prints a program as text of the score language, and computes its digest.
#pragma once

#include <string>

#include "generator/score/language/program.hpp"

namespace attune::score {

// Returns the canonical text: without comments, with the names of captures and scalars. Nodes that
// are used twice or nested deeply become locals v0, v1 ... The text parses to an equal program,
// given the same captures and scalars.
std::string canonical_text(const Program& program);

// Returns a digest of the program's computation, as 32 hex digits: language version, kind, nodes,
// type and rank of each capture, type of each scalar. Names of captures and scalars are excluded.
std::string digest(const Program& program);

}  // namespace attune::score
