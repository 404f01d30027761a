// SPDX-License-Identifier: Apache-2.0
// The progress line; see progress_line.hpp.
#include "tuner/cli/progress_line.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

namespace attune::cli {
namespace {

constexpr int kBarWidth = 24;

size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ProgressLine::ProgressLine() : active_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(double fraction, std::string_view text) {
  if (!active_ || now_s() - last_s_ < 0.1) return;
  last_s_ = now_s();
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kBarWidth);
  std::string line = fmt::format("[{}{}] {}", std::string(static_cast<size_t>(full), '#'),
                                 std::string(static_cast<size_t>(kBarWidth - full), '.'), text);
  line.resize(std::min(line.size(), terminal_width() - 1));
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace attune::cli
