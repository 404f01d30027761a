// SPDX-License-Identifier: Apache-2.0
// choose_winner: the rule by which stored trials become a winner. It is a pure function: the same
// trials give the same winner in any order. Used by the tuner after the final round, and by `attune
// explain`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cache/records.hpp"

namespace attune {

// A difference below this share of the fastest median is not worth leaving the default.
inline constexpr double kTieBand = 0.01;
// A timing is noisy if its 95 % interval is wider than this share of its median.
inline constexpr double kNoisyWidth = 0.2;

// True if the 95 % interval of `timing` is wider than kNoisyWidth of its median.
bool is_noisy(const Timing& timing);
// True if the winner's timing or that of the default config in the same tune is noisy.
bool is_noisy(const WinnerRecord& winner);

struct WinnerChoice {
  size_t index = 0;    // into the trials given
  int candidates = 0;  // trials that could have won: status ok, with a time
  int tied = 0;        // candidates as fast as the fastest, which is included
  std::string why;  // "fastest by 6.1 %", "tie of 3, default kept", "tie of 2, fewer registers (96
                    // against 128)"
};

// True if `trial` is or may be as fast as `fastest`: their medians differ by at most the sum of
// kTieBand and the combined interval. The latter is the root of the sum of squares of fastest's
// upper and trial's lower half-width.
bool ties_with(const TrialRecord& fastest, const TrialRecord& trial);

// Returns the winner among the trials of one TuningKey that were measured in one final round;
// nullopt if no trial can win. Among all that tie with the fastest, this decides in order: the
// default; fewer registers; less shared memory; the smaller tile (block_m * block_n); then
// template, arch and config as text. Unknown values (-1) come last.
std::optional<WinnerChoice> choose_winner(const std::vector<TrialRecord>& trials);

}  // namespace attune
