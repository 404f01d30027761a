// SPDX-License-Identifier: Apache-2.0
// Reading whole files, and writing them through a temporary name and a rename.
#include "tuner/cli/file.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "generator/core/error.hpp"

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
  const auto fail = [&](const std::string& reason) {
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path.string(), reason));
  };
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) fail(error.message());
  const std::filesystem::path partial = fmt::format("{}.{}.partial", path.string(), ::getpid());
  errno = 0;
  std::ofstream out(partial, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) {
    const std::string reason = std::strerror(errno);
    std::filesystem::remove(partial, error);
    fail(reason);
  }
  std::filesystem::rename(partial, path, error);
  if (error) fail(error.message());
}

}  // namespace attune::cli
