// SPDX-License-Identifier: Apache-2.0
// The randomness of dropout (shared/dropout.h): rates, pairs, rectangles, heads, offsets and seeds.
// Each test sums many terms of mean 0, in units of standard deviations. Seeds are fixed, so that
// results repeat.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "templates/shared/dropout.h"

namespace attune {
namespace {

constexpr int kRows = 256, kKeys = 1024, kPlaces = kRows * kKeys;
constexpr double kMost = 5;  // standard deviations; 3.7 is what the largest of 5000 comes to

// 1 - p for a kept place and -p for a dropped one, where p is the rate of kept places.
using Mask = std::vector<float>;

Mask mask(unsigned threshold, DropoutState state, unsigned head) {
  DropoutArgs args{};
  args.keep(threshold);
  const float p = static_cast<float>(threshold) / 256;
  const DropoutKey key = dropout_key(state, head);
  Mask made(kPlaces);
  for (unsigned row = 0; row < kRows; ++row)
    for (unsigned cell = 0; cell < kKeys / 16; ++cell)
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned stream = dropout_stream(row, 4 * half);
        const unsigned bits = dropout_bits(at_cell(at_stream(key, stream), cell), args.limit);
        for (unsigned i = 0; i < 16; ++i)
          if (i / 4 % 2 == half)
            made[row * kKeys + cell * 16 + i] =
                static_cast<float>(bits >> dropout_bit(row, i) & 1) - p;
      }
  return made;
}

class DropoutQuality : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr DropoutState kState{42, 7};

  Mask of(DropoutState state, unsigned head = 0) const { return mask(GetParam(), state, head); }

  // Returns a sum in standard deviations, for `count` products of `places` independent places each.
  double deviations(double sum, double count, int places) const {
    const double p = GetParam() / 256.0;
    return sum / std::sqrt(count * std::pow(p * (1 - p), places));
  }

  // Checks that two masks differ at random: places, and pairs of neighbours.
  void expect_unlike(const Mask& a, const Mask& b, const std::string& what) const {
    double places = 0, pairs = 0;
    for (size_t i = 0; i + 1 < kPlaces; ++i) {
      places += a[i] * b[i];
      pairs += a[i] * b[i] * a[i + 1] * b[i + 1];
    }
    EXPECT_LT(std::abs(deviations(places, kPlaces, 2)), kMost) << what;
    EXPECT_LT(std::abs(deviations(pairs, kPlaces, 4)), kMost) << what;
  }
};

TEST_P(DropoutQuality, EachPlaceOfASquareIsKeptAtTheRate) {
  const Mask m = of(kState);
  std::array<double, 256> sums{};
  double all = 0;
  for (size_t i = 0; i < kPlaces; ++i) {
    sums[i / kKeys % 16 * 16 + i % 16] += m[i];
    all += m[i];
  }
  EXPECT_LT(std::abs(deviations(all, kPlaces, 1)), kMost);
  for (const double sum : sums) EXPECT_LT(std::abs(deviations(sum, kPlaces / 256, 1)), kMost);
}

// All 256 values that eight neighbours have, along keys and along rows.
TEST_P(DropoutQuality, EightNeighboursAreIndependent) {
  const Mask m = of(kState);
  const double p = GetParam() / 256.0;
  for (const int step : {1, kKeys}) {
    std::array<int, 256> seen{};
    for (int row = 0; row < kRows; row += step == 1 ? 1 : 8)
      for (int key = 0; key < kKeys; key += step == 1 ? 8 : 1) {
        int value = 0;
        for (int i = 0; i < 8; ++i)
          value |= (m[static_cast<size_t>(row * kKeys + key + i * step)] > 0 ? 1 : 0) << i;
        ++seen[static_cast<size_t>(value)];
      }
    double squares = 0, cells = 0, rest = 0, expected_of_rest = 0;
    for (unsigned value = 0; value < 256; ++value) {
      const int kept = std::popcount(value);
      const double expected = kPlaces / 8 * std::pow(p, kept) * std::pow(1 - p, 8 - kept);
      if (expected < 10) {
        rest += seen[value], expected_of_rest += expected;
        continue;
      }
      squares += std::pow(seen[value] - expected, 2) / expected;
      cells += 1;
    }
    EXPECT_LT(std::abs(squares - (cells - 1)) / std::sqrt(2 * cells), kMost) << step;
    EXPECT_LE(std::abs(rest - expected_of_rest), kMost * std::sqrt(expected_of_rest + 1)) << step;
  }
}

TEST_P(DropoutQuality, PairsAreIndependent) {
  const Mask m = of(kState);
  for (int down = 0; down <= 17; ++down)
    for (int right = down == 0 ? 1 : -17; right <= 17; ++right) {
      double sum = 0, count = 0;
      for (int row = 0; row + down < kRows; ++row)
        for (int key = std::max(0, -right); key < std::min(kKeys, kKeys - right); ++key, ++count)
          sum += m[static_cast<size_t>(row * kKeys + key)] *
                 m[static_cast<size_t>((row + down) * kKeys + key + right)];
      EXPECT_LT(std::abs(deviations(sum, count, 2)), kMost) << down << " " << right;
    }
}

// Four places (i, j), (i, j'), (i', j), (i', j'). If random numbers of rows and keys were only
// added, one place would follow from the other three.
TEST_P(DropoutQuality, RectanglesAreIndependent) {
  const Mask m = of(kState);
  for (const int down : {1, 2, 3, 4, 8, 16, 17, 32, 64, 128})
    for (const int right : {1, 2, 3, 4, 8, 16, 17, 32, 64, 128, 256}) {
      double sum = 0, count = 0;
      for (int row = 0; row + down < kRows; ++row)
        for (int key = 0; key + right < kKeys; ++key, ++count) {
          const size_t at = static_cast<size_t>(row * kKeys + key);
          const size_t below = at + static_cast<size_t>(down * kKeys);
          sum += m[at] * m[at + static_cast<size_t>(right)] * m[below] *
                 m[below + static_cast<size_t>(right)];
        }
      EXPECT_LT(std::abs(deviations(sum, count, 4)), kMost) << down << " " << right;
    }
}

TEST_P(DropoutQuality, HeadsOffsetsAndSeedsAreIndependent) {
  const Mask m = of(kState);
  for (const unsigned head : {1U, 2U, 3U, 64U, 4096U, 1U << 31})
    expect_unlike(m, of(kState, head), "head " + std::to_string(head));
  for (int bit = 0; bit < 64; bit += 3) {
    const unsigned long long one = 1ULL << bit;
    expect_unlike(m, of({kState.seed ^ one, kState.offset}), "seed bit " + std::to_string(bit));
    expect_unlike(m, of({kState.seed, kState.offset ^ one}), "offset bit " + std::to_string(bit));
    expect_unlike(m, of({kState.seed ^ one, kState.offset ^ one}), "bit " + std::to_string(bit));
  }
}

// Two streams, or two cells, whose numbers differ by a bit: each place with its counterpart,
// over many heads.
TEST_P(DropoutQuality, NumbersThatDifferByABitAreIndependentInEachHead) {
  constexpr unsigned kHeads = 20000, kCellBits = 12, kBits = 28;
  const double p = GetParam() / 256.0;
  DropoutArgs args{};
  args.keep(GetParam());
  std::array<std::array<double, 32>, kBits> sums{};
  for (unsigned head = 0; head < kHeads; ++head) {
    const DropoutKey key = dropout_key(kState, head);
    const unsigned cell = key.word[1] % 4096, stream = key.word[2] % 65536;  // any
    const unsigned kept = dropout_bits(at_cell(at_stream(key, stream), cell), args.limit);
    for (unsigned bit = 0; bit < kBits; ++bit) {
      const unsigned to_cell = bit < kCellBits ? 1U << bit : 0;
      const unsigned to_stream = bit < kCellBits ? 0 : 1U << (bit - kCellBits);
      const DropoutKey other = at_cell(at_stream(key, stream ^ to_stream), cell ^ to_cell);
      const unsigned beside = dropout_bits(other, args.limit);
      for (unsigned i = 0; i < 32; ++i)
        sums[bit][i] += ((kept >> i & 1) - p) * ((beside >> i & 1) - p);
    }
  }
  for (unsigned bit = 0; bit < kBits; ++bit)
    for (const double sum : sums[bit])
      EXPECT_LT(std::abs(deviations(sum, kHeads, 2)), kMost) << bit;
}

constexpr unsigned kWords = 8, kPlacesOfWord = 32, kSamples = 1 << 14;

// Which samples have a bit: that of place `i` in word `word`, as they are read, of many streams.
using Samples = std::bitset<kSamples>;
using StreamBits = std::array<std::array<Samples, kPlacesOfWord>, kWords>;

StreamBits bits_of_streams() {
  StreamBits bits;
  for (unsigned sample = 0; sample < kSamples; ++sample) {
    DropoutKey x = dropout_key({42, 7}, sample);
    dropout_pass(x.word);
    const unsigned sum = dropout_pass(x.word);
    unsigned words[kWords];
    std::copy(x.word, x.word + 4, words);
    dropout_last_pass(x.word, sum);
    std::copy(x.word, x.word + 4, words + 4);
    for (unsigned word = 0; word < kWords; ++word)
      for (unsigned i = 0; i < kPlacesOfWord; ++i)
        bits[word][i][sample] = (words[word] >> i & 1) != 0;
  }
  return bits;
}

// If a pass added words as they are read, the lowest bit of one place would be the parity of two
// bits of another.
TEST(DropoutStreams, NoBitOfAPlaceIsTheParityOfTwoOfAnother) {
  constexpr double kMostOfManyPairs =
      6;  // standard deviations: 4.6 is what the largest of 220,000 comes to
  const auto bits = std::make_unique<StreamBits>(bits_of_streams());
  for (unsigned place = 0; place < kPlacesOfWord; ++place)
    for (unsigned a = 0; a < kWords; ++a)
      for (unsigned b = 0; b < a; ++b) {
        const Samples parity = (*bits)[a][place] ^ (*bits)[b][place];
        for (unsigned word = 0; word < kWords; ++word)
          for (unsigned other = 0; other < kPlacesOfWord; ++other) {
            const double differ = static_cast<double>((parity ^ (*bits)[word][other]).count());
            EXPECT_LT(std::abs(differ - kSamples / 2.0) / std::sqrt(kSamples / 4.0),
                      kMostOfManyPairs)
                << a << " " << b << " at " << place << ", " << word << " at " << other;
          }
      }
}

INSTANTIATE_TEST_SUITE_P(Thresholds, DropoutQuality, ::testing::Values(26U, 128U, 230U),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

}  // namespace
}  // namespace attune
