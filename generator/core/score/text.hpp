// SPDX-License-Identifier: Apache-2.0
// A program as text of its language, and its identity.
#pragma once

#include <string>

#include "generator/core/score/program.hpp"

namespace attune::score {

// The canonical tree: no comments, the names of captures and scalars as they are, locals v0, v1.. for what is used twice (and where
// parentheses would nest deeply). Parsed with the program's own captures and scalars it gives an equal program.
std::string canonical_text(const Program& program);

// 32 hex digits of what the program does: language version, kind, nodes, type and rank of each capture, type of each scalar. Names
// and values of scalars are not in it.
std::string digest(const Program& program);

}  // namespace attune::score
