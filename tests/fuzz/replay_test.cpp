// SPDX-License-Identifier: Apache-2.0
// Reads the corpora of the fuzzers in every build: each file unchanged, cut short, and with one
// byte changed. Each must give a value or an attune::Error.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "generator/core/system/error.hpp"
#include "tests/fuzz/parsers.hpp"

namespace attune::testing {
namespace {

std::vector<std::string> corpus(const std::string& name) {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = std::filesystem::path(ATTUNE_CORPUS) / name;
  if (std::filesystem::is_directory(folder))
    for (const auto& file : std::filesystem::directory_iterator(folder)) files.push_back(file);
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return texts;
}

class Replay : public ::testing::TestWithParam<Parser> {
 protected:
  // True if the text was accepted.
  static bool read(const std::string& text) {
    try {
      GetParam().read(text);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
};

TEST_P(Replay, Corpus) {
  const std::vector<std::string> texts = corpus(GetParam().name);
  ASSERT_GE(texts.size(), 2U) << "tests/fuzz/corpus/" << GetParam().name << " is missing";
  std::mt19937_64 random(7);
  int taken = 0;
  for (const std::string& text : texts) {
    ASSERT_NO_THROW(taken += read(text)) << text.substr(0, 300);
    for (int i = 0; i < 20 && !text.empty(); ++i) {
      std::string changed = text;
      const size_t at = random() % text.size();
      if (i % 2 == 0)
        changed.resize(at);
      else
        changed[at] = static_cast<char>(random());
      ASSERT_NO_THROW(read(changed)) << changed.substr(0, 300);
    }
  }
  EXPECT_GT(taken, 0) << "no file of the corpus is sound";
}

std::vector<Parser> all() { return {kParsers, kParsers + kNumParsers}; }
INSTANTIATE_TEST_SUITE_P(Parsers, Replay, ::testing::ValuesIn(all()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attune::testing
