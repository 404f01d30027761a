// SPDX-License-Identifier: Apache-2.0
// Pins from winners, and their text; see pin_file.hpp.
#include "cache/pin_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr std::string_view kHead = "attune pin 1";
constexpr std::string_view kSum = "sha256 ";
constexpr size_t kColumns = 7;

bool beat_default(const WinnerRecord& winner) {
  return !winner.default_is_winner && winner.timing.median_us < winner.default_timing.median_us;
}

Pin pin_of(const WinnerRecord& w) {
  return {w.spec,
          w.shape,
          w.device.digest(),
          w.arch,
          w.toolchain.template_name,
          w.toolchain.template_digest,
          w.config,
          beat_default(w)};
}

// Returns the problem and device of a pin: a file has at most one line for them.
std::string key_of(const Pin& pin) {
  return to_text(problem_of(pin.spec, pin.shape)) + "\t" + pin.device_digest;
}

std::vector<std::string> sorted_lines(const std::vector<Pin>& pins) {
  std::vector<std::string> lines;
  for (const Pin& pin : pins) lines.push_back(pin.line());
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Returns the lines that the SHA-256 covers.
std::string body_of(const std::vector<Pin>& pins) {
  std::string body = fmt::format("{}\n", kHead);
  for (const std::string& line : sorted_lines(pins)) body += line + "\n";
  return body;
}

[[noreturn]] void refuse(const std::string& name, size_t line, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: line {}: {}", name, line, what));
}

std::vector<std::string> columns_of(std::string_view line) {
  std::vector<std::string> columns;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find('\t', at), line.size());
    columns.emplace_back(line.substr(at, end - at));
    at = end + 1;
  }
  return columns;
}

// Returns the pin of a line. Throws the fault, without its place.
Pin parse_line(std::string_view line) {
  const std::vector<std::string> columns = columns_of(line);
  if (columns.size() != kColumns)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("has {} columns; a pin has {}, with tabs between them", columns.size(),
                            kColumns));
  const Problem problem = parse_problem(columns[0]);
  Pin pin{spec_of(problem),
          shape_of(problem),
          columns[1],
          columns[2],
          columns[3],
          columns[4],
          parse_config(columns[5]),
          columns[6] == "better"};
  if (pin.line() != line)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("is not as attune writes it, \"{}\"", pin.line()));
  return pin;
}

}  // namespace

std::string Pin::line() const {
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}", key_of(*this), arch, template_name, template_digest,
                     config.to_text(), beat_default ? "better" : "default");
}

std::string PinFile::text() const {
  const std::string body = body_of(pins);
  return fmt::format("{}{}{}\n", body, kSum, sha256_hex(body));
}

std::array<uint8_t, 32> PinFile::digest() const {
  const std::string hex = sha256_hex(body_of(pins));
  std::array<uint8_t, 32> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

PinFile pins_of(const std::vector<WinnerRecord>& winners) {
  std::map<std::string, std::pair<const WinnerRecord*, Pin>> best;
  for (const WinnerRecord& winner : winners) {
    Pin pin = pin_of(winner);
    const auto [at, is_new] = best.try_emplace(key_of(pin), &winner, pin);
    if (is_new) continue;
    const auto rank = [](const WinnerRecord& w, const Pin& p) {
      return std::tuple(w.pinned, w.effort, w.created, p.line());
    };
    if (rank(winner, pin) > rank(*at->second.first, at->second.second))
      at->second = {&winner, std::move(pin)};
  }
  PinFile file;
  for (auto& [key, chosen] : best) file.pins.push_back(std::move(chosen.second));
  return file;
}

PinFile parse_pin_file(std::string_view text, const std::string& name) {
  PinFile file;
  std::string former, former_key;
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) refuse(name, number, "has no line end: the file is cut off");
    const std::string_view line = text.substr(at, end - at);
    if (number == 1 && line != kHead)
      refuse(name, number,
             fmt::format("must be \"{}\", the first line that `attune pin` writes", kHead));
    if (line.starts_with(kSum)) {
      if (line.substr(kSum.size()) != sha256_hex(text.substr(0, at)))
        refuse(name, number, "is not the SHA-256 of the lines above: they were changed");
      if (end + 1 != text.size()) refuse(name, number, "is not the last line");
      return file;
    }
    if (number > 1) {
      try {
        file.pins.push_back(parse_line(line));
      } catch (const Error& error) {
        refuse(name, number, error.what());
      }
      std::string key = key_of(file.pins.back());
      if (key == former_key) refuse(name, number, "pins what the line above pins");
      if (line < former) refuse(name, number, "is out of order");
      former = line;
      former_key = std::move(key);
    }
    at = end + 1;
  }
  refuse(name, number, "is missing: the last line is the SHA-256 of those above");
}

WinnerRecord winner_of(const Pin& pin, const DeviceIdentity& device) {
  WinnerRecord winner;
  winner.spec = pin.spec;
  winner.shape = pin.shape;
  winner.device = device;
  winner.toolchain.template_name = pin.template_name;
  winner.toolchain.template_digest = pin.template_digest;
  winner.arch = pin.arch;
  winner.config = pin.config;
  winner.timing.median_us = 1;
  winner.default_timing.median_us = pin.beat_default ? 2 : 1;
  winner.default_is_winner = !pin.beat_default;
  winner.why = "pinned by a file";
  winner.pinned = true;
  return winner;
}

}  // namespace attune
