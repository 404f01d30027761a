// SPDX-License-Identifier: Apache-2.0
// ClassSpread: reports devices with equal device digests (one class) that run the same kernels at
// different speeds. Merging sees both measurements of a trial. A difference comes from the power
// limit, cooling or clock. One winner for the class is then a compromise.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cache/records.hpp"

namespace attune {

// The least ratio of the medians of two devices of one class that is reported.
inline constexpr double kClassSpread = 1.05;

class ClassSpread {
 public:
  // Adds two measurements of one trial (same key, toolchain, arch and config). Ignores
  // the pair if one of them failed, or if both are the same measurement.
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
