// SPDX-License-Identifier: Apache-2.0
// One line on stderr that is written over as work goes on; silent when stderr is not a terminal.
// Used by tune and compile.
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
  // fraction in [0, 1]; parts: what matters most first, for a narrow terminal shows no more. Drawn
  // at most ten times a second.
  void show(double fraction, const std::vector<std::string>& parts);
  void clear();

 private:
  bool active_;
  bool drawn_ = false;
  double last_s_ = 0;
};

// The line for a terminal of that width.
std::string progress_text(double fraction, const std::vector<std::string>& parts, size_t width);

}  // namespace attune::cli
