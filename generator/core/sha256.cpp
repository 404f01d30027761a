// SPDX-License-Identifier: Apache-2.0
// FIPS 180-4, section 6.2, in its names; see sha256.hpp.
#include "generator/core/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace attune {
namespace {

constexpr std::array<uint32_t, 64> kConstants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t word_at(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

void Sha256::take(const unsigned char* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = word_at(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = s1 + w[t - 7] + s0 + w[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kConstants[t] + w[t];
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> more{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += more[i];
}

void Sha256::add(std::string_view bytes) {
  const auto* from = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  const size_t held = bytes_ % kBlock;
  bytes_ += left;
  if (held > 0) {
    const size_t part = std::min(left, kBlock - held);
    std::copy_n(from, part, held_.begin() + held);
    from += part, left -= part;
    if (held + part < kBlock) return;
    take(held_.data());
  }
  for (; left >= kBlock; from += kBlock, left -= kBlock) take(from);
  std::copy_n(from, left, held_.begin());
}

std::array<unsigned char, 32> Sha256::finish() {
  const uint64_t bits = 8 * bytes_;
  std::array<char, kBlock + 8>
      end{};  // a one, zeros up to 8 bytes below a block, the number of bits
  end[0] = static_cast<char>(0x80);
  const size_t zeros = (2 * kBlock - 8 - bytes_ % kBlock - 1) % kBlock;
  for (size_t i = 0; i < 8; ++i) end[1 + zeros + i] = static_cast<char>(bits >> (56 - 8 * i));
  add({end.data(), 1 + zeros + 8});
  std::array<unsigned char, 32> digest;
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<unsigned char>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

}  // namespace attune
