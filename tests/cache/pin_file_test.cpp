// SPDX-License-Identifier: Apache-2.0
// Pin files: the choice of winners, the round trip of the text, and the refusal of every changed
// text.
#include "cache/pin_file.hpp"

#include <gmock/gmock.h>

#include "generator/core/system/digest.hpp"
#include "tests/cache/store_samples.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

WinnerRecord winner(int64_t seqlen, int64_t block_m, const std::string& created) {
  const TuningKey key = sample_key(seqlen);
  WinnerRecord winner = sample_winner(key, block_m);
  winner.device = key.device;
  winner.created = created;
  return winner;
}

std::string refusal(const std::string& text) {
  return testing::error_text([&] { parse_pin_file(text, "site.pin"); },
                             ErrorCode::kInvalidArgument);
}

// Returns the text with a correct checksum.
std::string summed(const std::string& body) { return body + "sha256 " + sha256_hex(body) + "\n"; }

TEST(PinFile, TheBestWinnerOfEachProblemIsPinned) {
  WinnerRecord higher = winner(2048, 16, "2020-01-01T00:00:00.000Z");
  higher.effort = Effort::kExhaustive;
  WinnerRecord pinned = winner(1024, 32, "2020-01-01T00:00:00.000Z");
  pinned.pinned = true;
  const std::vector<WinnerRecord> winners{
      winner(2048, 64, "2026-01-01T00:00:00.000Z"), higher,
      winner(1024, 64, "2026-01-01T00:00:00.000Z"), pinned,
      winner(512, 64, "2026-01-01T00:00:00.000Z"),  winner(512, 32, "2026-01-02T00:00:00.000Z")};
  const PinFile file = pins_of(winners);
  ASSERT_EQ(file.pins.size(), 3U);
  for (const Pin& pin : file.pins)
    EXPECT_EQ(pin.config.at("block_m"), pin.shape.seqlen_q == 2048 ? 16 : 32);
  EXPECT_EQ(pins_of({winners.rbegin(), winners.rend()}).text(), file.text());
}

TEST(PinFile, ATextComesBackAsItWent) {
  WinnerRecord keeps_default = winner(1024, 128, "2026-01-01T00:00:00.000Z");
  keeps_default.default_is_winner = true;
  for (const PinFile& file :
       {PinFile{}, pins_of({winner(2048, 64, "2026-01-01T00:00:00.000Z"), keeps_default})}) {
    const PinFile again = parse_pin_file(file.text(), "site.pin");
    EXPECT_EQ(again.pins, file.pins);
    EXPECT_EQ(again.text(), file.text());
    std::string hex;
    for (const uint8_t byte : again.digest()) {
      const char* const digits = "0123456789abcdef";
      hex += digits[byte / 16], hex += digits[byte % 16];
    }
    EXPECT_THAT(file.text(), ::testing::EndsWith("sha256 " + hex + "\n"));
  }
}

TEST(PinFile, TimesAndNamesDoNotShow) {
  WinnerRecord other = winner(2048, 64, "2030-01-01T00:00:00.000Z");
  other.timing.median_us = 80;
  other.device.name = "another name";
  other.conditions.driver = "600.0";
  EXPECT_EQ(pins_of({other}).text(),
            pins_of({winner(2048, 64, "2026-01-01T00:00:00.000Z")}).text());
}

TEST(PinFile, AnyChangedByteAndAnyCutIsRefused) {
  const std::string text = pins_of({winner(2048, 64, "2026-01-01T00:00:00.000Z"),
                                    winner(1024, 64, "2026-01-01T00:00:00.000Z")})
                               .text();
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_NE(refusal(changed), "accepted") << "byte " << i;
    EXPECT_NE(refusal(text.substr(0, i)), "accepted") << "cut at " << i;
  }
  EXPECT_THAT(refusal(text + "x\n"), HasSubstr("is not the last line"));
}

TEST(PinFile, FaultsAreNamed) {
  const std::string line =
      pins_of({winner(2048, 64, "2026-01-01T00:00:00.000Z")}).pins.front().line();
  EXPECT_THAT(refusal(summed("attune pin 2\n")), HasSubstr("site.pin: line 1: must be"));
  EXPECT_THAT(refusal(summed("attune pin 1\nnonsense\n")), HasSubstr("line 2: has 1 columns"));
  EXPECT_THAT(refusal(summed("attune pin 1\n" + line + "\n" + line + "\n")),
              HasSubstr("line 3: pins what the line above pins"));
  EXPECT_THAT(refusal(summed("attune pin 1\n" + line + " \n")), HasSubstr("not as attune writes"));
  EXPECT_THAT(refusal("attune pin 1\n" + line + "\n"), HasSubstr("line 3: is missing"));
}

}  // namespace
}  // namespace attune
