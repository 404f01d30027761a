// SPDX-License-Identifier: Apache-2.0
// Running from a pin file (cache/pin_file.hpp): finds the pins for this device, and checks that
// this library can run their configs. Used by the engine if EngineOptions::pin names a file, and by
// `attune pin --check`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cache/pin_file.hpp"
#include "generator/core/system/files.hpp"

namespace attune {

// Throws kIo if the file cannot be read, kInvalidArgument if it is not a pin file.
PinFile read_pin_file(const std::filesystem::path& path, FileKinds kinds = FileKinds::kRegular);

// Returns the pins for exactly this device (equal digests).
std::vector<Pin> pins_for(const PinFile& file, const DeviceIdentity& device);

// Returns one sentence for each pin whose template this library does not have, or has in a
// different version.
std::vector<std::string> faults_of(const std::vector<Pin>& pins);

// Returns the pins for this device as winners for the ladder. Throws kNotTuned with the path and
// the first fault.
std::vector<WinnerRecord> pinned_winners(const std::filesystem::path& path, const PinFile& file,
                                         const DeviceIdentity& device);

}  // namespace attune
