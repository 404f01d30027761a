// SPDX-License-Identifier: Apache-2.0
// Digests: XXH3-128 for identities, SHA-256 for the integrity of stored images.
#pragma once

#include <string>
#include <string_view>

namespace attune {

std::string xxh3_128_hex(std::string_view bytes);  // 32 hex digits
// Returns the digest of both texts, one after the other, as 64 hex digits.
std::string sha256_hex(std::string_view bytes, std::string_view more = {});

}  // namespace attune
