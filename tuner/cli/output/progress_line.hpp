// SPDX-License-Identifier: Apache-2.0
// One line on stderr that is rewritten as work proceeds; silent if stderr is not a terminal. Used
// by tune and compile.
#pragma once

#include <string>
#include <vector>

namespace attune::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool active() const { return active_; }
  // Draws the line, at most ten times a second. fraction is in [0, 1]. The most important part
  // comes first: a narrow terminal shows no more.
  void show(double fraction, const std::vector<std::string>& parts);
  void clear();

 private:
  bool active_;
  bool drawn_ = false;
  double last_s_ = 0;
};

// Returns the line for a terminal of that width.
std::string progress_text(double fraction, const std::vector<std::string>& parts, size_t width);

}  // namespace attune::cli
