// SPDX-License-Identifier: Apache-2.0
// The only user of xxHash and libsodium; see digest.hpp.
#include "generator/core/digest.hpp"

#include <sodium/crypto_hash_sha256.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>

#include "generator/core/sha256_x86.hpp"

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

// Whole blocks by the machine's instructions where it has them, their ends by libsodium.
void update(crypto_hash_sha256_state* hash, std::string_view bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const size_t begun = hash->count / 8 % 64;  // bytes of a block that is not whole yet
  const size_t first = std::min((64 - begun) % 64, bytes.size());
  crypto_hash_sha256_update(hash, data, first);
  size_t done = first;
  if (has_sha256_x86()) {
    const size_t blocks = (bytes.size() - first) / 64;
    sha256_x86(hash->state, data + first, blocks);
    hash->count += 512 * blocks;  // in bits
    done += 64 * blocks;
  }
  crypto_hash_sha256_update(hash, data + done, bytes.size() - done);
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
  update(&hash, bytes);
  update(&hash, more);
  std::array<unsigned char, crypto_hash_sha256_BYTES> out{};
  crypto_hash_sha256_final(&hash, out.data());
  return hex(out.data(), out.size());
}

}  // namespace attune
