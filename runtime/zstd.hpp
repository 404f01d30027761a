// SPDX-License-Identifier: Apache-2.0
// Zstandard for bundles whose images are packed (bundle_file.hpp), by the system's libzstd.so.1. It is
// opened when the first of them asks for it, so that no other program needs it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune {

// Whether libzstd.so.1 is found here; why not is told in `why` when it is not null.
bool zstd_is_here(std::string* why = nullptr);

// Both throw kUnsupported where it is not. The same library makes the same bytes of the same bytes.
std::string zstd_packed(std::string_view bytes);
// Throws kIo when `packed` is not that of exactly `bytes` bytes.
std::string zstd_unpacked(std::string_view packed, size_t bytes);

}  // namespace attune
