// SPDX-License-Identifier: Apache-2.0
// Deterministic mutations of good samples: text and files as an attacker or a bad disk leaves them.
// Used by the tests of this folder.
#pragma once

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace attune::testing {

// Returns a token that tends to break parsers: ends of ranges, other numbers, structure, bytes.
inline std::string odd_token(std::mt19937_64& random) {
  static const std::vector<std::string> kTokens = {"-1",
                                                   "0",
                                                   "-0",
                                                   "9223372036854775807",
                                                   "-9223372036854775808",
                                                   "18446744073709551616",
                                                   "2147483647",
                                                   "-2147483648",
                                                   "4294967296",
                                                   "1e400",
                                                   "-1e999",
                                                   "1e-400",
                                                   "0x10",
                                                   "1.5",
                                                   "nan",
                                                   "inf",
                                                   "-inf",
                                                   "null",
                                                   "true",
                                                   "{}",
                                                   "[]",
                                                   "\"\"",
                                                   "[",
                                                   "]",
                                                   "{",
                                                   "}",
                                                   ":",
                                                   ",",
                                                   "=",
                                                   "/",
                                                   "\"",
                                                   "\\",
                                                   "\\u0000",
                                                   "\\ud800",
                                                   "\n",
                                                   "\r\n",
                                                   "\t",
                                                   " ",
                                                   "\x1b[2J",
                                                   "\xff\xfe",
                                                   "\xc0\x80",
                                                   "%s%n",
                                                   "../../",
                                                   "auto",
                                                   "none",
                                                   "causal_bottom_right",
                                                   "window=",
                                                   "dtype=",
                                                   "head_dim=",
                                                   std::string(1, '\0'),
                                                   std::string(300, '9'),
                                                   std::string(5000, 'a')};
  return kTokens[random() % kTokens.size()];
}

// Makes one to six changes in one of `samples`.
class Mutator {
 public:
  Mutator(std::vector<std::string> samples, uint64_t seed)
      : samples_(std::move(samples)), random_(seed) {}

  std::string next() {
    std::string text = samples_[random_() % samples_.size()];
    for (uint64_t changes = 1 + random_() % 6; changes > 0; --changes) change(&text);
    if (random_() % 4000 == 0) nest(&text);
    return text;
  }
  uint64_t draw(uint64_t below) { return random_() % below; }

 private:
  size_t place(const std::string& text) { return random_() % (text.size() + 1); }

  void change(std::string* text) {
    const size_t at = place(*text);
    const size_t length = random_() % 12;
    switch (random_() % 9) {
      case 0:
        if (at < text->size()) (*text)[at] = static_cast<char>((*text)[at] ^ (1 << random_() % 8));
        return;
      case 1:
        if (at < text->size()) (*text)[at] = static_cast<char>(random_());
        return;
      case 2:
        text->erase(at, length);
        return;
      case 3:
        text->insert(at, text->substr(place(*text), 1 + random_() % 60));
        return;
      case 4:
        text->resize(at);
        return;
      case 5: {  // the rest of another sample
        const std::string& other = samples_[random_() % samples_.size()];
        *text = text->substr(0, at) + other.substr(place(other));
        return;
      }
      case 6:
        replace_number(text, at);
        return;
      default:
        text->replace(at, std::min(length, text->size() - at), odd_token(random_));
    }
  }

  // Replaces the next number after `at` by another token.
  void replace_number(std::string* text, size_t at) {
    const size_t begin = text->find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = text->find_first_not_of("0123456789.", begin);
    text->replace(begin, (end == std::string::npos ? text->size() : end) - begin,
                  odd_token(random_));
  }

  void nest(std::string* text) {
    const size_t depth = random_() % 2 == 0 ? 200 : 100'000;
    const char* open = random_() % 2 == 0 ? "[" : "{\"a\":";
    std::string deep;
    for (size_t i = 0; i < depth; ++i) deep += open;
    text->insert(place(*text), deep);
  }

  const std::vector<std::string> samples_;
  std::mt19937_64 random_;
};

// Returns the number of inputs: `tenth` (a tenth or less of a long run) times ATTUNE_ATTACK_TIMES.
inline int attack_count(int tenth) {
  const char* times = std::getenv("ATTUNE_ATTACK_TIMES");
  return tenth * (times != nullptr ? std::max(1, std::atoi(times)) : 1);
}

}  // namespace attune::testing
