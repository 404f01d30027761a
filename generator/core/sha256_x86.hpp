// SPDX-License-Identifier: Apache-2.0
// SHA-256 of whole blocks by the SHA instructions of x86, about three times as fast as libsodium's
// portable code. For digest.cpp alone, which leaves padding and the rest to libsodium.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attune {

bool has_sha256_x86();  // false on other machines
// Folds `blocks` blocks of 64 bytes into the eight words of `state`. Only where has_sha256_x86().
void sha256_x86(uint32_t* state, const unsigned char* bytes, size_t blocks);

}  // namespace attune
