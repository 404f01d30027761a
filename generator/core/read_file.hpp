// SPDX-License-Identifier: Apache-2.0
// Reads a whole file that somebody named.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace attune {

// The library reads only regular files; the program also reads pipes and devices that its user
// names.
enum class FileKinds { kRegular, kStreamsToo };

// Throws kIo with `noun` ("the program file"), the path and why: it is a folder or of another kind,
// it is larger than `most` bytes, or the system's reason.
std::string read_file(std::string_view noun, const std::filesystem::path& path, size_t most,
                      FileKinds kinds = FileKinds::kRegular);

}  // namespace attune
