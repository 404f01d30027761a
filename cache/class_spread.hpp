// SPDX-License-Identifier: Apache-2.0
// ClassSpread: whether two devices that the store takes for one class (equal device digests) run
// the same kernels equally fast. Merging sees both measurements of a trial; a difference means
// another power limit, cooling or clock, and that one winner for the class is a compromise.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cache/records.hpp"

namespace attune {

// From this ratio of medians on, two devices of one class are reported.
inline constexpr double kClassSpread = 1.05;

class ClassSpread {
 public:
  // Two measurements of one trial (same key, toolchain, arch and config). Those that failed, or are
  // one and the same measurement, do not count.
  void add(const DeviceIdentity& device, const TrialRecord& mine, const TrialRecord& theirs);
  // One sentence for each class whose median ratio is kClassSpread or more, either way.
  std::vector<std::string> sentences() const;

 private:
  struct Class {
    std::string title;
    std::vector<double> ratios;  // theirs to mine
    std::string conditions;      // "driver 580.1 here, 590.2 there" where they differ
  };
  std::map<std::string, Class> classes_;  // by device digest
};

}  // namespace attune
