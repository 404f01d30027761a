// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), in the one place that asks for it: digest.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace attune {

class Sha256 {
 public:
  void add(std::string_view bytes);
  // Of all that was added; the object is used up.
  std::array<unsigned char, 32> finish();

 private:
  static constexpr size_t kBlock = 64;
  void take(const unsigned char* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, kBlock> held_{};  // the first bytes_ % 64 of a block
  uint64_t bytes_ = 0;
};

}  // namespace attune
