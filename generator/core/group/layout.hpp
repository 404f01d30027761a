// SPDX-License-Identifier: Apache-2.0
// Layouts: the tokens of a sequence that each rank of a group holds. A layout is a pure function of
// the problem of the whole, so all ranks compute the same one. Used by schedule.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem/problem.hpp"

namespace attune {

struct Range {  // [first, end)
  int64_t first = 0, end = 0;
  int64_t size() const { return end - first; }
  bool operator==(const Range&) const = default;
};
Range common(Range one, Range other);  // an empty range has end == first

// For each rank the ranges of its tokens, rising; a rank may hold none.
using Layout = std::vector<std::vector<Range>>;

// The whole problem of a group, in which rows and keys are the same tokens.
struct WholeProblem {
  Problem problem;
  // First tokens of documents, then the length of the sequence, rising from 0. Tokens see keys of
  // their own document only, and masks and windows count from it. Empty: one document.
  std::vector<int64_t> documents;
  // True: launches are the same for each number of ranks. Each has the rows of one block
  // (block_borders).
  bool world_invariant = false;
};
// Throws kInvalidArgument or kUnsupported if no group can compute the problem.
void validate(const WholeProblem& whole);

// Rows of one document, with the keys that they see. Row i sees keys i - left to i + right of these
// keys; a negative side is open.
struct Area {
  Range rows, keys;
  int64_t left = -1, right = -1;
};
std::vector<Area> areas_of(const WholeProblem& whole, const std::vector<Range>& rows);
// Returns the part of an area that sees these keys: rows that see none of them are cut off.
Area part_of(const Area& area, Range keys);
int64_t visible_pairs(const Area& area);  // of rows and keys

constexpr int kRowBlocks = 16;
// Returns the kRowBlocks + 1 borders of blocks of rows. Borders of contiguous and zigzag layouts
// are among them if 16 is a multiple of the parts. Blocks of short sequences may hold no row.
std::vector<int64_t> block_borders(const WholeProblem& whole);
// Returns the ranges, cut at the borders of blocks.
std::vector<Range> cut_at_blocks(const WholeProblem& whole, const std::vector<Range>& rows);

constexpr int64_t kLayoutGrain = 128;  // rows: borders of layouts are multiples of it
constexpr int kMostRanks = 4096;

enum class LayoutKind {
  kContiguous,   // one range a rank
  kZigzag,       // one range of the first half and its mirror image: balances causal masks
  kBalanced,     // pieces, dealt by the pairs that they compute; all ranks hold as many pieces
  kInterleaved,  // blocks of `block` tokens, dealt in turn
};
// Returns the layout for `world` ranks. block: tokens of kInterleaved's blocks.
Layout make_layout(LayoutKind kind, const WholeProblem& whole, int world, int64_t block);
// Returns the kind that suits the problem's masks: contiguous, zigzag or balanced.
LayoutKind usual_layout(const WholeProblem& whole);

// Text form: "0-128+896-1024/128-256+768-896", ranges joined by '+', ranks by '/'.
std::string to_text(const Layout& layout);
// Reads this form, or a kind: "contiguous", "zigzag", "balanced", "interleaved:16", "auto". Throws
// kInvalidArgument, also if a token has no rank or several.
Layout parse_layout(std::string_view text, const WholeProblem& whole, int world);

}  // namespace attune
