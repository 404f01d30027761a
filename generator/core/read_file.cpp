// SPDX-License-Identifier: Apache-2.0
// Reading a whole file; see read_file.hpp.
#include "generator/core/read_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "generator/core/error.hpp"

namespace attune {

std::string read_file(std::string_view noun, const std::filesystem::path& path, size_t most) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::kIo, fmt::format("{} {} cannot be read: {}", noun, path.string(), why));
  };
  std::error_code unused;
  if (std::filesystem::is_directory(path, unused)) refuse("it is a folder");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  while (in && text.size() <= most) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
  }
  if (text.size() > most) refuse(fmt::format("it is larger than {} bytes", most));
  if (!in.eof() || in.bad()) refuse(std::strerror(errno));
  return text;
}

}  // namespace attune
