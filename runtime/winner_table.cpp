// SPDX-License-Identifier: Apache-2.0
// Reading and finding winners; see winner_table.hpp.
#include "runtime/winner_table.hpp"

#include <set>
#include <utility>

#include "generator/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/image_source.hpp"
#include "runtime/ladder.hpp"

namespace attune {
namespace {

std::string key_of(const KernelSpec& spec) { return to_text(family_of(spec)); }

bool is_current(const WinnerRecord& winner) {
  for (const KernelTemplate* one : all_templates())
    if (one->name() == winner.toolchain.template_name)
      return template_digest(*one) == winner.toolchain.template_digest;
  return false;
}

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

WinnerTable::WinnerTable(const Rows& rows) {
  std::unordered_map<std::string, Rows> found;
  for (const WinnerRecord& winner : rows) found[key_of(winner.spec)].push_back(winner);
  for (auto& [family, list] : found) rows_[family] = std::make_shared<const Rows>(std::move(list));
}

PinFile WinnerTable::pins(const DeviceIdentity& device) const {
  Rows first;
  std::set<std::string> seen;
  for (const auto& [family, rows] : rows_)
    for (WinnerRecord winner : *rows) {
      if (device.is_cpu() && winner.device.sm_count > 0 &&
          winner.device.sm_count != device.sm_count)
        continue;
      if (!is_current(winner)) continue;
      if (!seen.insert(to_text(problem_of(winner.spec, winner.shape))).second) continue;
      winner.device = device;
      first.push_back(std::move(winner));
    }
  return pins_of(first);
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
