// SPDX-License-Identifier: Apache-2.0
// Output of commands: aligned tables for people, one JSON object for programs. Used by every
// command.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace attune::cli {

using Json = nlohmann::ordered_json;

// A table whose columns are as wide as their widest cell. Numbers are right-aligned. On a terminal
// that is too narrow, the widest columns leave the line: the first column is printed above its row,
// the others below it with their names.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string text() const;              // for stdout
  std::string text(size_t width) const;  // 0: not limited

 private:
  struct Column {
    size_t width = 0;
    bool right = false;
    bool in_line = true;
  };
  static size_t line_width(const std::vector<Column>& columns);
  static std::string line_of(const std::vector<std::string>& cells,
                             const std::vector<Column>& columns);
  std::string row_text(const std::vector<std::string>& row,
                       const std::vector<Column>& columns) const;

  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

// Prints text for people to stdout. Wraps long lines on a terminal, and makes control characters
// visible. Throws kIo if stdout cannot be written.
void print(std::string_view text);
void print_bytes(std::string_view bytes);  // to stdout, unchanged
void print_notice(std::string_view text);  // like print, to stderr, with a line end
// Writes {"schema": "attune.<name>/1", ...body} to stdout.
void print_json(std::string_view name, const Json& body);

std::string format_time(double microseconds);  // "12.3 us", "4.56 ms", "1.20 s"
std::string format_bytes(double bytes);        // "1.5 MiB"

// Reads a whole file. Throws kIo with the path and the system's reason. Refuses a file above 1 GiB.
std::string read_file(const std::filesystem::path& path);
// Writes a whole file. It never appears half written: it gets its name only when it is complete.
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace attune::cli
