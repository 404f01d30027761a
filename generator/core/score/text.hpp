// SPDX-License-Identifier: Apache-2.0
// A program as text of its language, and its digest.
#pragma once

#include <string>

#include "generator/core/score/program.hpp"

namespace attune::score {

// Returns the canonical tree: without comments, with the names of captures and scalars, and with
// locals v0, v1 ... for nodes used twice (and for deep parentheses). Parsed with the program's own
// captures and scalars it gives an equal program.
std::string canonical_text(const Program& program);

// Returns 32 hex digits of what the program computes: language version, kind, nodes, type and rank
// of each capture, type of each scalar. Names and values of scalars are not included.
std::string digest(const Program& program);

}  // namespace attune::score
