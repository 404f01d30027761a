// SPDX-License-Identifier: Apache-2.0
// Reading whole files, and writing them through a temporary name and a rename.
#include "tuner/cli/file.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "generator/core/error.hpp"
#include "generator/core/replace_file.hpp"

namespace attune::cli {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // no text that a command takes is near it

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(ErrorCode::kIo, fmt::format("cannot read {}: it is a folder", path.string()));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  std::vector<char> piece(1 << 16);
  while (in && text.size() <= kMostBytes) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
  }
  if (text.size() > kMostBytes)
    throw Error(ErrorCode::kIo, fmt::format("cannot read {}: it is larger than {} bytes",
                                            path.string(), kMostBytes));
  if (!in.eof() || in.bad())
    throw Error(ErrorCode::kIo,
                fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  return text;
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path.string(), error.message()));
  replace_file(path, bytes);
}

}  // namespace attune::cli
