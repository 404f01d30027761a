// SPDX-License-Identifier: Apache-2.0
// The only user of xxHash and libsodium; see digest.hpp.
#include "generator/core/system/digest.hpp"

#include <sodium/crypto_hash_sha256.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

namespace attune {
namespace {

std::string hex(const unsigned char* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * count);
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

}  // namespace

std::string xxh3_128_hex(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return hex(canonical.digest, sizeof(canonical.digest));
}

std::string sha256_hex(std::string_view bytes, std::string_view more) {
  crypto_hash_sha256_state hash;
  crypto_hash_sha256_init(&hash);
  for (const std::string_view part : {bytes, more})
    crypto_hash_sha256_update(&hash, reinterpret_cast<const unsigned char*>(part.data()),
                              part.size());
  std::array<unsigned char, crypto_hash_sha256_BYTES> out{};
  crypto_hash_sha256_final(&hash, out.data());
  return hex(out.data(), out.size());
}

}  // namespace attune
