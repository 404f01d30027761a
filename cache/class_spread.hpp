// SPDX-License-Identifier: Apache-2.0
// ClassSpread: compares two devices that the store treats as one class (equal device digests). Do
// they run the same kernels equally fast? Merging sees both measurements of a trial. A difference
// means another power limit, cooling or clock, and makes one winner for the class a compromise.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cache/records.hpp"

namespace attune {

// Two devices of one class are reported if the ratio of their medians is at least this.
inline constexpr double kClassSpread = 1.05;

class ClassSpread {
 public:
  // Adds two measurements of one trial (same key, toolchain, arch and config). The pair does not
  // count if one of them failed, or if both are the same measurement.
  void add(const DeviceIdentity& device, const TrialRecord& mine, const TrialRecord& theirs);
  // Returns one sentence for each class whose median ratio, in either direction, is at least
  // kClassSpread.
  std::vector<std::string> sentences() const;

 private:
  struct Class {
    std::string title;
    std::vector<double> ratios;  // theirs to mine
    std::string conditions;      // "driver 580.1 here, 590.2 there"; empty if equal
  };
  std::map<std::string, Class> classes_;  // by device digest
};

}  // namespace attune
