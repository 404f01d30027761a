// SPDX-License-Identifier: Apache-2.0
// WinnerTable: the winners that the ladder may use on one device, by family of specs. A family's are
// read from the stores when it is first asked for and kept, so that opening a context costs the same
// whatever was tuned, and a plan of a family that was asked for never asks a database.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/pin_file.hpp"
#include "cache/records.hpp"

namespace attune {

class ImageSource;
class StoreStack;

class WinnerTable {
 public:
  using Rows = std::vector<WinnerRecord>;

  WinnerTable() = default;
  // Bundles come first, then the user's store, then others. `images` outlives the table.
  WinnerTable(const ImageSource& images, const DeviceIdentity& device);
  explicit WinnerTable(const Rows& rows);

  // Of the spec's family (family_of, ladder.hpp), most trusted layer first; never null.
  std::shared_ptr<const Rows> of(const KernelSpec& spec);
  // What stands for this device, as pins: the most trusted layer's of each problem, stale ones and
  // those of other numbers of threads left out. Reads every family.
  PinFile pins(const DeviceIdentity& device);
  // Stands before the others of its family. Lists that were given out stay as they are.
  void add(const WinnerRecord& winner);

 private:
  const std::string& family_of_text(const std::string& problem_text);
  std::shared_ptr<const Rows>& list_of(const std::string& family);

  const StoreStack* stores_ =
      nullptr;  // those that are not read yet; null: nothing is left to read
  DeviceIdentity device_;
  std::unordered_map<std::string, Rows> bundled_;          // by family; before the stores' rows
  std::unordered_map<std::string, std::string> families_;  // of the texts of the stores' problems
  std::unordered_map<std::string, std::shared_ptr<const Rows>> rows_;  // families that were read
};

}  // namespace attune
