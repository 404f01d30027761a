// SPDX-License-Identifier: Apache-2.0
// WinnerTable: the winners that the ladder may use on one device, by family of specs. The winners
// of a family are read from the stores at its first use and kept. So the time to open a context
// does not depend on the size of the stores, and later plans of the family read no database.
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
  // Takes winners of bundles first, then of the user's store, then of other stores. `images` must
  // outlive the table.
  WinnerTable(const ImageSource& images, const DeviceIdentity& device);
  explicit WinnerTable(const Rows& rows);

  // Returns the winners of the spec's family (family_of, ladder.hpp), most trusted layer first;
  // never null.
  std::shared_ptr<const Rows> of(const KernelSpec& spec);
  // Returns the winners for this device as pins: one per problem, from the most trusted layer.
  // Leaves out stale winners and winners of other thread counts. Reads all families.
  PinFile pins(const DeviceIdentity& device);
  // Inserts a winner before the others of its family. Lists that `of` returned do not change.
  void add(const WinnerRecord& winner);

 private:
  const std::string& family_of_text(const std::string& problem_text);
  std::shared_ptr<const Rows>& list_of(const std::string& family);

  const StoreStack* stores_ = nullptr;  // from which families are read; null: there are no stores
  DeviceIdentity device_;
  std::unordered_map<std::string, Rows> bundled_;          // by family; before rows of stores
  std::unordered_map<std::string, std::string> families_;  // by text of a stored problem
  std::unordered_map<std::string, std::shared_ptr<const Rows>> rows_;  // families that were read
};

}  // namespace attune
