// SPDX-License-Identifier: Apache-2.0
// The progress line; see progress_line.hpp.
#include "tuner/cli/output/progress_line.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "tuner/cli/output/terminal.hpp"

namespace attune::cli {
namespace {

constexpr size_t kBarWidth = 24;
constexpr size_t kShortBarWidth = 8;
constexpr size_t kNarrow = 60;  // columns; below, there is no bar

constexpr size_t kShortestPart = 12;  // of a part that is cut; a shorter piece is useless

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ProgressLine::ProgressLine() : active_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

namespace {

// Joins as many parts as fit. Cuts the last one if enough of it remains.
std::string joined(const std::vector<std::string>& parts, size_t width) {
  std::string text;
  for (const std::string& part : parts) {
    const std::string next = (text.empty() ? "" : ", ") + part;
    const size_t room = width - std::min(width, text.size());
    if (next.size() > room && room < kShortestPart) break;
    text += next.substr(0, room);
    if (next.size() > room) break;
  }
  return text;
}

std::string bar(double fraction, size_t width) {
  const double full = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(width);
  const auto done = static_cast<size_t>(full);
  return fmt::format("[{}{}] ", std::string(done, '#'), std::string(width - done, '.'));
}

}  // namespace

std::string progress_text(double fraction, const std::vector<std::string>& parts, size_t width) {
  const std::string all = joined(parts, 1000);
  if (all.size() + kBarWidth + 3 <= width) return bar(fraction, kBarWidth) + all;
  if (width < kNarrow) return joined(parts, width);
  return bar(fraction, kShortBarWidth) + joined(parts, width - kShortBarWidth - 3);
}

void ProgressLine::show(double fraction, const std::vector<std::string>& parts) {
  if (!active_ || now_s() - last_s_ < 0.1) return;
  last_s_ = now_s();
  write_stderr("\r\033[K" + progress_text(fraction, parts, terminal_width(STDERR_FILENO) - 1));
  drawn_ = true;
}

void ProgressLine::clear() {
  if (!drawn_) return;
  write_stderr("\r\033[K");
  drawn_ = false;
}

}  // namespace attune::cli
