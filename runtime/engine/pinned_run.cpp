// SPDX-License-Identifier: Apache-2.0
// Checking pins against this library and device; see pinned_run.hpp.
#include "runtime/engine/pinned_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

const KernelTemplate* find_template(const std::string& name) {
  for (const KernelTemplate* one : all_templates())
    if (one->name() == name) return one;
  return nullptr;
}

}  // namespace

PinFile read_pin_file(const std::filesystem::path& path, FileKinds kinds) {
  constexpr size_t kMostBytes = size_t{1} << 30;
  return parse_pin_file(read_file("pin file", path, kMostBytes, kinds), path.string());
}

std::vector<Pin> pins_for(const PinFile& file, const DeviceIdentity& device) {
  std::vector<Pin> pins;
  const std::string digest = device.digest();
  std::copy_if(file.pins.begin(), file.pins.end(), std::back_inserter(pins),
               [&](const Pin& pin) { return pin.device_digest == digest; });
  return pins;
}

std::vector<std::string> faults_of(const std::vector<Pin>& pins) {
  std::vector<std::string> faults;
  for (const Pin& pin : pins) {
    const KernelTemplate* const one = find_template(pin.template_name);
    const std::string what = fmt::format(
        "{} is pinned to {}", to_text(problem_of(pin.spec, pin.shape)), pin.template_name);
    if (!one)
      faults.push_back(what + ", which this version of attune does not have");
    else if (!same_revision(template_digest(*one), pin.template_digest))
      faults.push_back(what + ", which has changed since: tune and pin again with this version");
  }
  return faults;
}

std::vector<WinnerRecord> pinned_winners(const std::filesystem::path& path, const PinFile& file,
                                         const DeviceIdentity& device) {
  const std::vector<Pin> pins = pins_for(file, device);
  const std::vector<std::string> faults = faults_of(pins);
  if (!faults.empty())
    throw Error(ErrorCode::kNotTuned,
                fmt::format("pin file {}: {}{}", path.string(), faults.front(),
                            faults.size() > 1 ? fmt::format(" (and {} more)", faults.size() - 1)
                                              : std::string()));
  std::vector<WinnerRecord> winners;
  for (const Pin& pin : pins) winners.push_back(winner_of(pin, device));
  return winners;
}

}  // namespace attune
