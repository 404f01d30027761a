// SPDX-License-Identifier: Apache-2.0
// PinFile: the kernel of each tuned problem, as text that people review and ship. `attune pin`
// writes it, and ATTUNE_PIN names the file to read. Ranks that run from equal pins run equal
// kernels.
//
//   attune pin 1
//   <problem>\t<device digest>\t<arch>\t<template>\t<template digest>\t<config>\t<better|default>
//   ...                                           sorted; one line per problem and device
//   sha256 <64 hex digits, of everything above>
//
// The file has no times or dates, so stores that choose the same kernels give the same file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records.hpp"

namespace attune {

struct Pin {
  KernelSpec spec;
  Shape shape;
  std::string device_digest;  // DeviceIdentity::digest
  std::string arch, template_name, template_digest;
  Config config;
  bool beat_default = false;  // the config was better than the default

  // Returns the line of the file: problem, device and choice, without the reason for the choice.
  std::string line() const;
  bool operator==(const Pin&) const = default;
};

struct PinFile {
  std::vector<Pin> pins;

  std::string text() const;
  // Returns the SHA-256 of the lines, which the last line of the text has as hex digits. Equal for
  // equal pins in any order.
  std::array<uint8_t, 32> digest() const;
};

// Returns the best winner of each problem and device, by the rule of layers: pinned first, then
// higher effort, then newer, then by text. So the order of `winners` does not matter.
PinFile pins_of(const std::vector<WinnerRecord>& winners);

// Throws kInvalidArgument with `name`, the line and the fault: another version, a line that is not
// a pin, two lines for one problem and device, lines out of order, a SHA-256 that does not match
// the lines.
PinFile parse_pin_file(std::string_view text, const std::string& name);

// Returns a pin as a winner for the ladder. Its timings only say if it beat the default.
WinnerRecord winner_of(const Pin& pin, const DeviceIdentity& device);

}  // namespace attune
