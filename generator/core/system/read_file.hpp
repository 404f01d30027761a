// SPDX-License-Identifier: Apache-2.0
// Reads a whole file whose path came from a user.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace attune {

// kRegular is for the library. The program also reads pipes and character devices that its user
// names.
enum class FileKinds { kRegular, kStreamsToo };

// Throws kIo with `noun` ("the program file"), the path and the reason: it is a folder or has
// another wrong kind, it is larger than `most` bytes, or the system's error.
std::string read_file(std::string_view noun, const std::filesystem::path& path, size_t most,
                      FileKinds kinds = FileKinds::kRegular);

}  // namespace attune
