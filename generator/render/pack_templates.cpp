// SPDX-License-Identifier: Apache-2.0
// pack_templates ROOT OUT FILE...: writes the table of files below ROOT for
// generator/render/source_bundle.cpp, with their texts packed together (packed_text.hpp). Runs at
// build time.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "generator/render/packed_text.hpp"

namespace {

using attune::kLongestShortCopy;
using attune::kShortestCopy;

constexpr size_t kLongestCopy = 65535, kFarthest = (size_t{1} << 24) - 1;
constexpr int kTries = 256;  // candidates per search

// Positions in the text by their next four bytes, the latest first.
class Places {
 public:
  explicit Places(const std::string& text)
      : text_(text), first_(size_t{1} << 16, -1), next_(text.size(), -1) {}

  void add(size_t at) {
    if (at + kShortestCopy > text_.size()) return;
    next_[at] = first_[slot(at)];
    first_[slot(at)] = static_cast<int64_t>(at);
  }
  // Returns the length of the longest copy for the text at `at`, or 0 if there is none.
  size_t longest(size_t at, size_t* distance) const {
    if (at + kShortestCopy > text_.size()) return 0;
    size_t best = 0;
    int64_t place = first_[slot(at)];
    for (int tries = 0; place >= 0 && tries < kTries; ++tries, place = next_[place]) {
      const size_t from = static_cast<size_t>(place);
      if (at - from > kFarthest) break;
      const size_t most = std::min(text_.size() - at, kLongestCopy);
      size_t count = 0;
      while (count < most && text_[from + count] == text_[at + count]) ++count;
      if (count > best) best = count, *distance = at - from;
    }
    return best >= kShortestCopy + 1 ? best : 0;  // a shorter copy saves nothing
  }

 private:
  size_t slot(size_t at) const {
    uint32_t four = 0;
    for (size_t i = 0; i < 4; ++i) four = four << 8 | static_cast<unsigned char>(text_[at + i]);
    return (four * 2654435761u) >> 16;
  }
  const std::string& text_;
  std::vector<int64_t> first_, next_;
};

void put_number(size_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_plain(const std::string& text, size_t begin, size_t end, std::string* out) {
  for (; begin < end; begin += std::min<size_t>(128, end - begin)) {
    const size_t count = std::min<size_t>(128, end - begin);
    *out += static_cast<char>(count - 1);
    out->append(text, begin, count);
  }
}

std::string pack(const std::string& text) {
  Places places(text);
  std::string packed;
  size_t plain = 0;  // beginning of the bytes that no copy covers
  for (size_t at = 0; at < text.size();) {
    size_t distance = 0, later = 0;
    size_t count = places.longest(at, &distance);
    places.add(at);
    // A copy from the next byte is better
    if (count > 0 && places.longest(at + 1, &later) > count + 1) count = 0;
    if (count == 0) {
      ++at;
      continue;
    }
    put_plain(text, plain, at, &packed);
    const bool is_long = count > kLongestShortCopy;
    packed += static_cast<char>(is_long ? 255 : 128 + count - kShortestCopy);
    put_number(distance, 3, &packed);
    if (is_long) put_number(count, 2, &packed);
    for (size_t i = 1; i < count; ++i) places.add(at + i);
    plain = at += count;
  }
  put_plain(text, plain, text.size(), &packed);
  if (attune::unpack(packed, text.size()) != text)
    throw std::runtime_error("packing is not undone");
  return packed;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

// Returns the bytes as the elements of an array, in lines.
std::string array_text(const std::string& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    text += std::to_string(static_cast<unsigned char>(bytes[i])) + ",";
    if (i % 32 == 31) text += "\n";
  }
  return text;
}

int write_table(const std::string& root, const std::string& out, char** begin, char** end) {
  std::string all, table;
  for (char** file = begin; file != end; ++file) {
    const std::string text = read(root + "/" + *file);
    all += text;
    table += "    {\"" + std::string(*file) + "\", " + std::to_string(text.size()) + "},\n";
  }
  std::ostringstream source;
  source << "#include \"generator/render/packed_text.hpp\"\n\nnamespace attune {\nnamespace {\n"
         << "constexpr unsigned char kBytes[] = {\n"
         << array_text(pack(all)) << "};\n"
         << "constexpr PackedFile kFiles[] = {\n"
         << table << "};\n}  // namespace\n\n"
         << "PackedFiles packed_files() { return {kBytes, sizeof kBytes, kFiles, "
         << "sizeof kFiles / sizeof kFiles[0]}; }\n\n}  // namespace attune\n";
  std::ifstream former(out, std::ios::binary);
  if (std::string(std::istreambuf_iterator<char>(former), {}) == source.str()) return 0;
  std::ofstream file(out, std::ios::binary);
  file << source.str();
  return file.flush() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: pack_templates ROOT OUT FILE...\n"), 1;
  try {
    return write_table(argv[1], argv[2], argv + 3, argv + argc);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "pack_templates: %s\n", error.what()), 1;
  }
}
