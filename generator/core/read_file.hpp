// SPDX-License-Identifier: Apache-2.0
// Reading a whole file that somebody named.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace attune {

// The library reads regular files alone; the program reads a pipe or a device too, which its user
// names.
enum class FileKinds { kRegular, kStreamsToo };

// Throws kIo with `noun` ("the program file"), the path and why: it is a folder or of another kind,
// it is larger than `most` bytes, or the system's reason.
std::string read_file(std::string_view noun, const std::filesystem::path& path, size_t most,
                      FileKinds kinds = FileKinds::kRegular);

}  // namespace attune
