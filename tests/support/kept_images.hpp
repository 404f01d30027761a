// SPDX-License-Identifier: Apache-2.0
// Keeps compiled images of a test run in a folder, so that tests which compile the same source
// share one compile. Used by kept_clang.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

// Returns the folder in ATTUNE_TEST_IMAGES; empty if nothing is kept.
std::string kept_images_folder();

// Returns the name of an image's file: a digest of all parts. Parts may hold any byte.
std::string kept_image_name(const std::vector<std::string>& parts);

// Returns the bytes that keep_image stored under this name. A damaged file counts as missing.
std::optional<std::string> kept_image(const std::string& name);

// Stores the bytes. Does nothing if the folder cannot be written to: the image is compiled again.
void keep_image(const std::string& name, std::string_view bytes);

}  // namespace attune
