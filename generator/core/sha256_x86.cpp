// SPDX-License-Identifier: Apache-2.0
// The rounds of FIPS 180-4, section 6.2, four at a time; see sha256_x86.hpp. Source of the operand
// orders: Intel 64 and IA-32 Software Developer's Manual, SHA256RNDS2, SHA256MSG1, SHA256MSG2.
#include "generator/core/sha256_x86.hpp"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

namespace attune {
namespace {

alignas(16) constexpr uint32_t kRoundConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

__m128i* quads(void* words) { return static_cast<__m128i*>(words); }
const __m128i* quads(const void* words) { return static_cast<const __m128i*>(words); }

}  // namespace

bool has_sha256_x86() {
  static const bool has = [] {  // asked once: a virtual machine leaves for its host at each cpuid
    constexpr unsigned kSha = 1u << 29;
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b & kSha) != 0;
  }();
  return has;
}

// The instructions keep the state as (f, e, b, a) and (h, g, d, c), lowest word first.
__attribute__((target("sha,sse4.1"))) void sha256_x86(uint32_t* state, const unsigned char* bytes,
                                                      size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(quads(state)), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(quads(state + 4)), 0x1b);
  __m128i feba = _mm_alignr_epi8(badc, hgfe, 8), hgdc = _mm_blend_epi16(hgfe, badc, 0xf0);
  for (; blocks > 0; --blocks, bytes += 64) {
    const __m128i former_feba = feba, former_hgdc = hgdc;
    __m128i w[4];  // the last 16 words of the message schedule
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];
      const __m128i last = w[(i + 3) % 4];
      if (i < 4)
        now = _mm_shuffle_epi8(_mm_loadu_si128(quads(bytes) + i), big_endian);
      else
        now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]),
                                                 _mm_alignr_epi8(last, w[(i + 2) % 4], 4)),
                                   last);
      const __m128i k = _mm_add_epi32(now, _mm_load_si128(quads(kRoundConstants) + i));
      hgdc = _mm_sha256rnds2_epu32(hgdc, feba, k);
      feba = _mm_sha256rnds2_epu32(feba, hgdc, _mm_shuffle_epi32(k, 0x0e));
    }
    feba = _mm_add_epi32(feba, former_feba);
    hgdc = _mm_add_epi32(hgdc, former_hgdc);
  }
  const __m128i abef = _mm_shuffle_epi32(feba, 0x1b), dchg = _mm_shuffle_epi32(hgdc, 0xb1);
  _mm_storeu_si128(quads(state), _mm_blend_epi16(abef, dchg, 0xf0));
  _mm_storeu_si128(quads(state + 4), _mm_alignr_epi8(dchg, abef, 8));
}

}  // namespace attune

#else

namespace attune {

bool has_sha256_x86() { return false; }
void sha256_x86(uint32_t*, const unsigned char*, size_t) {}

}  // namespace attune

#endif
