// SPDX-License-Identifier: Apache-2.0
// WinnerTable: the winners that the ladder may use on one device, by family of specs. The engine
// reads them once, so that making a plan never asks a database.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/pin_file.hpp"
#include "cache/records.hpp"

namespace attune {

class ImageSource;

class WinnerTable {
 public:
  using Rows = std::vector<WinnerRecord>;

  WinnerTable() = default;
  // Bundles come first, then the user's store, then others.
  WinnerTable(const ImageSource& images, const DeviceIdentity& device);
  explicit WinnerTable(const Rows& rows);

  // Of the spec's family (family_of, ladder.hpp), most trusted layer first; never null.
  std::shared_ptr<const Rows> of(const KernelSpec& spec) const;
  // What of them stands for this device, as pins: the most trusted layer's of each problem, stale
  // ones and those of other numbers of threads left out.
  PinFile pins(const DeviceIdentity& device) const;
  // Stands before the others of its family. Lists that were given out stay as they are.
  void add(const WinnerRecord& winner);

 private:
  std::unordered_map<std::string, std::shared_ptr<const Rows>> rows_;
};

}  // namespace attune
