// SPDX-License-Identifier: Apache-2.0
// Tables, JSON and units of the program's output.
#include "tuner/cli/output.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "generator/core/error.hpp"

namespace attune::cli {
namespace {

bool is_number(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 ||
                           ((cell[0] == '-' || cell[0] == '+') && cell.size() > 1 &&
                            std::isdigit(static_cast<unsigned char>(cell[1])) != 0));
}

// Cells of people's languages are not expected; a byte is a column.
std::string padded(const std::string& cell, size_t width, bool right) {
  const std::string space(width > cell.size() ? width - cell.size() : 0, ' ');
  return right ? space + cell : cell + space;
}

}  // namespace

Table::Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}

void Table::add(std::vector<std::string> cells) {
  cells.resize(headers_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::string out;
  std::vector<size_t> widths;
  std::vector<bool> right;
  for (size_t column = 0; column < headers_.size(); ++column) {
    size_t width = headers_[column].size();
    bool numeric = !rows_.empty();
    for (const auto& row : rows_) {
      width = std::max(width, row[column].size());
      numeric = numeric && (is_number(row[column]) || row[column] == "-" || row[column].empty());
    }
    widths.push_back(width);
    right.push_back(numeric);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t column = 0; column < cells.size(); ++column)
      text += padded(cells[column], widths[column], right[column]) + "  ";
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line(headers_);
  std::vector<std::string> rule;
  for (const size_t width : widths) rule.emplace_back(width, '-');
  line(rule);
  for (const auto& row : rows_) line(row);
  return out;
}

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_notice(std::string_view text) { fmt::print(stderr, "{}\n", text); }

void print_json(std::string_view name, const Json& body) {
  Json object;
  object["schema"] = fmt::format("attune.{}/1", name);
  object.update(body);
  print(object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string format_time(double microseconds) {
  if (microseconds < 1e3) return fmt::format("{:.1f} us", microseconds);
  if (microseconds < 1e6) return fmt::format("{:.2f} ms", microseconds * 1e-3);
  return fmt::format("{:.2f} s", microseconds * 1e-6);
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace attune::cli
