// SPDX-License-Identifier: Apache-2.0
// Reading and finding winners; see winner_table.hpp.
#include "runtime/winner_table.hpp"

#include <utility>

#include "runtime/image_source.hpp"
#include "runtime/ladder.hpp"

namespace attune {
namespace {

std::string key_of(const KernelSpec& spec) { return to_text(family_of(spec)); }

}  // namespace

WinnerTable::WinnerTable(const ImageSource& images, const DeviceIdentity& device) {
  std::unordered_map<std::string, Rows> found;
  for (const Bundle& bundle : images.bundles())
    for (const WinnerRecord& winner : bundle.winners())
      found[key_of(winner.spec)].push_back(winner);
  for (WinnerRecord& winner : images.stores().load_winners(device))
    found[key_of(winner.spec)].push_back(std::move(winner));
  for (auto& [family, list] : found) rows_[family] = std::make_shared<const Rows>(std::move(list));
}

std::shared_ptr<const WinnerTable::Rows> WinnerTable::of(const KernelSpec& spec) const {
  static const auto none = std::make_shared<const Rows>();
  const auto found = rows_.find(key_of(spec));
  return found == rows_.end() ? none : found->second;
}

void WinnerTable::add(const WinnerRecord& winner) {
  std::shared_ptr<const Rows>& rows = rows_[key_of(winner.spec)];
  Rows more{winner};
  if (rows) more.insert(more.end(), rows->begin(), rows->end());
  rows = std::make_shared<const Rows>(std::move(more));
}

}  // namespace attune
