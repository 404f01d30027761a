// SPDX-License-Identifier: Apache-2.0
// Reading a whole file; see read_file.hpp.
#include "generator/core/system/read_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "generator/core/system/error.hpp"
#include "generator/core/system/open_file.hpp"

namespace attune {

std::string read_file(std::string_view noun, const std::filesystem::path& path, size_t most,
                      FileKinds kinds) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::kIo, fmt::format("{} {} cannot be read: {}", noun, path.string(), why));
  };
  std::error_code unused;
  if (std::filesystem::is_directory(path, unused)) refuse("it is a folder");
  std::string why;
  const FileDescriptor file = kinds == FileKinds::kStreamsToo && is_stream(path)
                                  ? open_stream(path, O_RDONLY, &why)
                                  : open_regular(path, O_RDONLY, &why);
  if (!file) refuse(why);
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  for (;;) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(std::strerror(errno));
    if (got == 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > most) refuse(fmt::format("it is larger than {} bytes", most));
  }
}

}  // namespace attune
