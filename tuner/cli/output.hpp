// SPDX-License-Identifier: Apache-2.0
// What commands print: aligned tables for people, one JSON object for programs. Used by every
// command.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace attune::cli {

using Json = nlohmann::ordered_json;

// Columns as wide as their widest cell; numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string text() const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

void print(std::string_view text);         // to stdout
void print_notice(std::string_view text);  // to stderr, with a line end
// Writes {"schema": "attune.<name>/1", ...body} to stdout.
void print_json(std::string_view name, const Json& body);

std::string format_time(double microseconds);  // "12.3 us", "4.56 ms", "1.20 s"
std::string format_bytes(double bytes);        // "1.5 MiB"

}  // namespace attune::cli
