// SPDX-License-Identifier: Apache-2.0
// Tables, JSON and units for the program's output.
#include "tuner/cli/output/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "generator/core/system/foreign_text.hpp"
#include "generator/core/system/json_text.hpp"
#include "tuner/cli/output/terminal.hpp"

namespace attune::cli {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // far more than any text for a command

bool is_number(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 ||
                           ((cell[0] == '-' || cell[0] == '+') && cell.size() > 1 &&
                            std::isdigit(static_cast<unsigned char>(cell[1])) != 0));
}

std::string padded(const std::string& cell, size_t width, bool right) {
  const size_t columns = columns_of(cell);
  const std::string space(width > columns ? width - columns : 0, ' ');
  return right ? space + cell : cell + space;
}

// Writes all of the text, or throws kIo with the system's reason.
void write_stdout(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  throw Error(ErrorCode::kIo,
              fmt::format("cannot write to stdout: {}", std::strerror(errno == 0 ? EIO : errno)));
}

}  // namespace

Table::Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}

void Table::add(std::vector<std::string> cells) {
  cells.resize(headers_.size());
  for (std::string& cell : cells) cell = printable(one_line(cell));
  rows_.push_back(std::move(cells));
}

std::string Table::text() const { return text(terminal_width(STDOUT_FILENO)); }

std::string Table::text(size_t width) const {
  std::vector<Column> columns(headers_.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    columns[i].width = headers_[i].size();
    columns[i].right = !rows_.empty();
    for (const auto& row : rows_) {
      columns[i].width = std::max(columns[i].width, columns_of(row[i]));
      columns[i].right = columns[i].right && (is_number(row[i]) || row[i] == "-" || row[i].empty());
    }
  }
  while (width > 0 && line_width(columns) > width && columns.size() > 1) {
    const auto widest =
        std::max_element(columns.begin(), columns.end(), [](const Column& a, const Column& b) {
          return (a.in_line ? a.width : 0) < (b.in_line ? b.width : 0);
        });
    widest->in_line = false;
  }
  std::vector<std::string> rule;
  for (const Column& column : columns) rule.emplace_back(column.width, '-');
  const std::string head = line_of(headers_, columns) + line_of(rule, columns);
  std::string text = line_width(columns) > 0 ? head : std::string();
  for (const auto& row : rows_) text += wrapped(row_text(row, columns), width);
  return text;
}

// Returns the width of a row's line; 0 if all columns are printed outside the line.
size_t Table::line_width(const std::vector<Column>& columns) {
  size_t width = 0;
  for (const Column& column : columns)
    if (column.in_line) width += column.width + 2;
  return width == 0 ? 0 : width - 2 + (columns.front().in_line ? 0 : 2);
}

std::string Table::line_of(const std::vector<std::string>& cells,
                           const std::vector<Column>& columns) {
  std::string text = columns.front().in_line ? "" : "  ";
  for (size_t i = 0; i < cells.size(); ++i)
    if (columns[i].in_line) text += padded(cells[i], columns[i].width, columns[i].right) + "  ";
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

// Returns a row's text. If the first column does not fit in the line, it is printed above; other
// columns that do not fit are printed below.
std::string Table::row_text(const std::vector<std::string>& row,
                            const std::vector<Column>& columns) const {
  std::string text = columns.front().in_line ? "" : row.front() + "\n";
  if (line_width(columns) > 0) text += line_of(row, columns);
  size_t name_width = 0;
  for (size_t i = 1; i < columns.size(); ++i)
    if (!columns[i].in_line) name_width = std::max(name_width, headers_[i].size());
  for (size_t i = 1; i < columns.size(); ++i)
    if (!columns[i].in_line && !row[i].empty() && row[i] != "-")
      text += "    " + padded(headers_[i], name_width, false) + "  " + row[i] + "\n";
  return text;
}

void print(std::string_view text) {
  write_stdout(wrapped(printable(text), terminal_width(STDOUT_FILENO)));
}

void print_bytes(std::string_view bytes) { write_stdout(bytes); }

void print_notice(std::string_view text) {
  write_stderr(wrapped(printable(text), terminal_width(STDERR_FILENO)) + "\n");
}

void print_json(std::string_view name, const Json& body) {
  Json object;
  object["schema"] = fmt::format("attune.{}/1", name);
  object.update(body);
  // Uses plain ASCII, because terminals execute some bytes above it as commands.
  print_bytes(to_json_text(object, 2, JsonLetters::kAscii) + "\n");
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

std::string read_file(const std::filesystem::path& path) {
  return attune::read_file("the file", path, kMostBytes, FileKinds::kStreamsToo);
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path.string(), error.message()));
  replace_file(path, bytes);
}

}  // namespace attune::cli
