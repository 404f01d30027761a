// SPDX-License-Identifier: Apache-2.0
// Config text, digests, archs and unique handles.
#include "generator/core/problem/config.hpp"

#include <gtest/gtest.h>

#include "generator/core/problem/arch.hpp"
#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/unique_handle.hpp"

namespace attune {
namespace {

TEST(Config, TextRoundTripsInOrder) {
  const Config config = parse_config("block_n=64,block_m=128,kv_slots=2");
  EXPECT_EQ(config.to_text(), "block_n=64,block_m=128,kv_slots=2");
  EXPECT_EQ(config.at("block_m"), 128);
  EXPECT_EQ(config.get("warps", 4), 4);
  EXPECT_THROW(config.at("warps"), Error);
}

TEST(Config, RefusesPartsOtherThanKnobEqualsInteger) {
  for (const char* text :
       {"block_m", "block_m=", "=3", "block_m=1.5", "block_m=a", "a=1,,b=2", "a=1,a=2"})
    EXPECT_THROW(parse_config(text), Error) << text;
}

TEST(Digest, KnownValues) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(xxh3_128_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(xxh3_128_hex("a"), xxh3_128_hex("b"));
}

// Lengths around the ends of blocks, and many blocks in one call. Another program computed the
// values.
TEST(Digest, Sha256OfEveryLength) {
  std::string digests;
  for (size_t length = 0; length < 300; ++length) {
    std::string bytes;
    for (size_t i = 0; i < length; ++i) bytes += static_cast<char>((7 * i + length) % 251);
    digests += sha256_hex(bytes);
    const size_t split = length * 3 / 7;
    EXPECT_EQ(sha256_hex(bytes.substr(0, split), bytes.substr(split)), sha256_hex(bytes));
  }
  EXPECT_EQ(sha256_hex(digests),
            "4d3510f0e43af5b27bf161ff53da62bfb3ec79abd52144aa5038dd415b2d08e5");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Arch, NamesRoundTrip) {
  for (const std::string& name : known_cuda_archs()) EXPECT_EQ(parse_arch(name).name(), name);
  EXPECT_EQ(parse_arch("cpu:znver4").name(), "cpu:znver4");
  EXPECT_EQ(parse_arch("sm_90a").shared_bytes_per_block, 232448);
}

TEST(Arch, RefusesUnknownArchsAndNamesTheKnownOnes) {
  for (const char* text : {"sm_99", "sm_80a", "sm_", "sm_9000", "gfx90a", "cpu:", ""}) {
    try {
      parse_arch(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("sm_90a"), std::string::npos);
    }
  }
}

struct CountingTraits {
  using Handle = int;
  static int none() { return -1; }
  static void close(int) noexcept { ++closed; }
  static inline int closed = 0;
};

TEST(UniqueHandle, ClosesOnce) {
  CountingTraits::closed = 0;
  {
    UniqueHandle<CountingTraits> a(3);
    UniqueHandle<CountingTraits> b(std::move(a));
    EXPECT_FALSE(a);
    b = UniqueHandle<CountingTraits>(4);
    EXPECT_EQ(CountingTraits::closed, 1);
    EXPECT_EQ(b.get(), 4);
  }
  EXPECT_EQ(CountingTraits::closed, 2);
}

}  // namespace
}  // namespace attune
