// SPDX-License-Identifier: Apache-2.0
// Reads and writes whole files. A file never appears half written: it gets its name only when it is
// complete.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace attune::cli {

// Throws kIo with the path and the system's reason. Refuses a file above 1 GiB.
std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace attune::cli
