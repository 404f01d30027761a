// SPDX-License-Identifier: Apache-2.0
// Reading and finding winners; see winner_table.hpp.
#include "runtime/engine/winner_table.hpp"

#include <set>
#include <utility>

#include "generator/core/system/error.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/image_source.hpp"
#include "runtime/engine/ladder.hpp"

namespace attune {
namespace {

std::string key_of(const KernelSpec& spec) { return to_text(family_of(spec)); }

}  // namespace

WinnerTable::WinnerTable(const ImageSource& images, const DeviceIdentity& device)
    : stores_(&images.stores()), device_(device) {
  for (const Bundle& bundle : images.bundles())
    for (const WinnerRecord& winner : bundle.winners())
      bundled_[key_of(winner.spec)].push_back(winner);
}

WinnerTable::WinnerTable(const Rows& rows) {
  for (const WinnerRecord& winner : rows) bundled_[key_of(winner.spec)].push_back(winner);
}

// Returns the family of a stored problem's text. A text that cannot be parsed has family "", whose
// rows each family reads, so that the fault is reported.
const std::string& WinnerTable::family_of_text(const std::string& problem_text) {
  const auto [found, is_new] = families_.try_emplace(problem_text);
  if (is_new) {
    try {
      found->second = key_of(parse_spec_text(problem_text));
    } catch (const Error&) {
    }
  }
  return found->second;
}

std::shared_ptr<const WinnerTable::Rows>& WinnerTable::list_of(const std::string& family) {
  std::shared_ptr<const Rows>& list = rows_[family];
  if (list) return list;
  const auto bundled = bundled_.find(family);
  Rows rows = bundled == bundled_.end() ? Rows() : bundled->second;
  if (stores_)
    for (WinnerRecord& winner : stores_->load_winners(device_, [&](const std::string& text) {
           const std::string& of_text = family_of_text(text);
           return of_text.empty() || of_text == family;
         }))
      rows.push_back(std::move(winner));
  list = std::make_shared<const Rows>(std::move(rows));
  return list;
}

PinFile WinnerTable::pins(const DeviceIdentity& device) {
  std::set<std::string> families;
  for (const auto& [family, unused] : bundled_) families.insert(family);
  for (const auto& [family, unused] : rows_) families.insert(family);
  if (stores_)
    stores_->load_winners(device_, [&](const std::string& text) {
      families.insert(family_of_text(text));
      return false;
    });
  Rows first;
  std::set<std::string> seen;
  for (const std::string& family : families)
    for (WinnerRecord winner : *list_of(family)) {
      if (device.is_cpu() && winner.device.sm_count > 0 &&
          winner.device.sm_count != device.sm_count)
        continue;
      const ToolchainIdentity& of = winner.toolchain;
      if (!is_current(template_state(of.template_name, of.template_digest))) continue;
      if (!seen.insert(to_text(problem_of(winner.spec, winner.shape))).second) continue;
      winner.device = device;
      first.push_back(std::move(winner));
    }
  return pins_of(first);
}

std::shared_ptr<const WinnerTable::Rows> WinnerTable::of(const KernelSpec& spec) {
  return list_of(key_of(spec));
}

void WinnerTable::add(const WinnerRecord& winner) {
  std::shared_ptr<const Rows>& rows = list_of(key_of(winner.spec));
  Rows more{winner};
  more.insert(more.end(), rows->begin(), rows->end());
  rows = std::make_shared<const Rows>(std::move(more));
}

}  // namespace attune
