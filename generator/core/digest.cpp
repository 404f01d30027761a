// SPDX-License-Identifier: Apache-2.0
// The only user of xxHash; see digest.hpp.
#include "generator/core/digest.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "generator/core/sha256.hpp"

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
  Sha256 hash;
  hash.add(bytes);
  hash.add(more);
  const auto out = hash.finish();
  return hex(out.data(), out.size());
}

}  // namespace attune
