// SPDX-License-Identifier: Apache-2.0
// Reading whole files, and writing them through a temporary name and a rename.
#include "tuner/cli/file.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "generator/core/error.hpp"
#include "generator/core/replace_file.hpp"

namespace attune::cli {

std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(ErrorCode::kIo, fmt::format("cannot read {}: it is a folder", path.string()));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  if (in) text << in.rdbuf();
  if (!in || in.bad())
    throw Error(ErrorCode::kIo,
                fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  return text.str();
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path.string(), error.message()));
  replace_file(path, bytes);
}

}  // namespace attune::cli
