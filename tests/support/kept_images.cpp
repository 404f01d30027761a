// SPDX-License-Identifier: Apache-2.0
// See kept_images.hpp. A file holds the SHA-256 of the bytes, then the bytes.
#include "tests/support/kept_images.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"

namespace attune {
namespace {

constexpr size_t kDigestChars = 64;

std::filesystem::path path_of(const std::string& name) {
  return std::filesystem::path(kept_images_folder()) / name;
}

}  // namespace

std::string kept_images_folder() { return environment_variable("ATTUNE_TEST_IMAGES").value_or(""); }

std::string kept_image_name(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += std::to_string(part.size()) + ":" + part;
  return sha256_hex(text);
}

std::optional<std::string> kept_image(const std::string& name) {
  std::ifstream file(path_of(name), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < kDigestChars) return std::nullopt;
  const std::string digest = bytes.substr(0, kDigestChars);
  bytes.erase(0, kDigestChars);
  if (sha256_hex(bytes) != digest) return std::nullopt;
  return bytes;
}

void keep_image(const std::string& name, std::string_view bytes) {
  try {
    replace_file(path_of(name), sha256_hex(bytes) + std::string(bytes));
  } catch (const Error&) {  // a full disk, or no such folder
  }
}

}  // namespace attune
