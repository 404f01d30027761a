// SPDX-License-Identifier: Apache-2.0
// Running from a pin file (cache/pin_file.hpp): what of it is for this device, and whether this
// library can run it. Used by the engine where EngineOptions::pin names a file, and by
// `attune pin --check`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cache/pin_file.hpp"
#include "generator/core/read_file.hpp"

namespace attune {

// Throws kIo when it cannot be read, kInvalidArgument for what is no pin file.
PinFile read_pin_file(const std::filesystem::path& path, FileKinds kinds = FileKinds::kRegular);

// The pins for this very device (equal digests).
std::vector<Pin> pins_for(const PinFile& file, const DeviceIdentity& device);

// One sentence for each of these that this library cannot run as it was meant: the template is
// unknown, or has changed since.
std::vector<std::string> faults_of(const std::vector<Pin>& pins);

// The pins for this device, as the ladder takes them. Throws kNotTuned with the path and the first
// fault.
std::vector<WinnerRecord> pinned_winners(const std::filesystem::path& path, const PinFile& file,
                                         const DeviceIdentity& device);

}  // namespace attune
