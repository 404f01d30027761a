// SPDX-License-Identifier: Apache-2.0
// PinFile: which kernel every tuned problem runs, as text that people review and ship; written by
// `attune pin`, read where ATTUNE_PIN names it. Ranks that run from equal pins run equal kernels.
//
//   attune pin 1
//   <problem>\t<device digest>\t<arch>\t<template>\t<template digest>\t<config>\t<better|default>
//   ...                                           sorted; one line for each problem and device
//   sha256 <64 hex digits, of everything above>
//
// Nothing in it says when or how long: stores that choose the same kernels give the same file.
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
  bool beat_default = false;  // the config was better than the default there

  // What is chosen, for whom, as it stands in the file; without what chose it.
  std::string line() const;
  bool operator==(const Pin&) const = default;
};

struct PinFile {
  std::vector<Pin> pins;

  std::string text() const;
  // SHA-256 of the lines: the last line of the text, as bytes. Equal for equal pins, in any order.
  std::array<uint8_t, 32> digest() const;
};

// The best winner of each problem and device, by the rule of layers: pinned, then the higher effort,
// then the newer, then by text, so that the order of winners does not show.
PinFile pins_of(const std::vector<WinnerRecord>& winners);

// Throws kInvalidArgument with `name`, the line and what is wrong: another version, a line that is
// not a pin, two lines for one problem and device, lines out of order, a SHA-256 that is not that of
// the lines.
PinFile parse_pin_file(std::string_view text, const std::string& name);

// As the ladder takes it: a pinned winner whose timings say only whether it beat the default.
WinnerRecord winner_of(const Pin& pin, const DeviceIdentity& device);

}  // namespace attune
