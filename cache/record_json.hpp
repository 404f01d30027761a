// SPDX-License-Identifier: Apache-2.0
// Records as JSON: the `info` column of a row, and the lines of an exported file (exchange.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/records.hpp"

namespace attune {

std::string info_text(const ImageInfo& info);
ImageInfo parse_info_text(std::string_view text);

// Return one JSON object without line breaks. Keys are sorted, so that equal rows give equal lines.
std::string trial_line(const StoredTrial& row);
std::string winner_line(const WinnerRecord& winner);
std::string program_line(const StoredProgram& program);
std::string header_line(size_t rows);  // `rows`: lines that follow

enum class LineKind { kHeader, kTrial, kWinner, kProgram };
// Each function throws kInvalidArgument with the fault of the line.
LineKind kind_of_line(std::string_view line);
std::optional<size_t> rows_of_header(std::string_view line);  // nullopt for older files
StoredTrial parse_trial_line(std::string_view line);
WinnerRecord parse_winner_line(std::string_view line);
StoredProgram parse_program_line(std::string_view line);  // and registers the program

}  // namespace attune
