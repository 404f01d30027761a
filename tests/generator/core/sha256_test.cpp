// SPDX-License-Identifier: Apache-2.0
// SHA-256 against the examples of FIPS 180-4 and NIST's CAVP, and cut at every place.
#include "generator/core/sha256.hpp"

#include <gtest/gtest.h>

#include "generator/core/digest.hpp"

namespace attune {
namespace {

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256_hex("\xbd"), "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
}

TEST(Sha256, PartsAreJoined) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(7 * i);
  for (size_t length : {0U, 1U, 55U, 56U, 63U, 64U, 65U, 119U, 120U, 128U, 200U})
    for (size_t cut = 0; cut <= length; ++cut)
      ASSERT_EQ(sha256_hex(text.substr(0, cut), text.substr(cut, length - cut)),
                sha256_hex(text.substr(0, length)))
          << length << " at " << cut;
}

// The digest of all digests is that of Python's hashlib.
TEST(Sha256, EveryLengthAroundABlock) {
  std::string digests;
  for (int length = 0; length < 256; ++length) {
    std::string bytes;
    for (int i = 0; i < length; ++i) bytes += static_cast<char>(i);
    digests += sha256_hex(bytes);
  }
  EXPECT_EQ(sha256_hex(digests),
            "c6af0de529d59e462ef135e191c98cb5a7e18ca9d6e63e3d62c82afe131a25d4");
}

}  // namespace
}  // namespace attune
