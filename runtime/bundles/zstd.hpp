// SPDX-License-Identifier: Apache-2.0
// Zstandard for bundles with packed images (bundle_file.hpp), through the system's libzstd.so.1.
// The library is opened at its first use, so programs without such bundles do not need it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune {

// True if libzstd.so.1 is found. Otherwise `why`, if not null, gets the reason.
bool zstd_is_here(std::string* why = nullptr);

// Both functions throw kUnsupported if the library is not found. The result of packing depends only
// on the bytes and the version of the library.
std::string zstd_packed(std::string_view bytes);
// Throws kIo if `packed` does not unpack to exactly `bytes` bytes.
std::string zstd_unpacked(std::string_view packed, size_t bytes);

}  // namespace attune
