// SPDX-License-Identifier: Apache-2.0
// Reads whole files; writes them through a temporary name and a rename.
#include "tuner/cli/file.hpp"

#include <fmt/core.h>

#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"

namespace attune::cli {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // far more than any text for a command

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  return attune::read_file("the file", path, kMostBytes, FileKinds::kStreamsToo);
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path.string(), error.message()));
  replace_file(path, bytes);
}

}  // namespace attune::cli
