// SPDX-License-Identifier: Apache-2.0
// Whole files in and out. Nothing is ever half written: a file appears under its name when it is
// complete.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace attune::cli {

// Throws kIo with the path and the system's reason; a file above 1 GiB is refused.
std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace attune::cli
