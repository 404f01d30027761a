// SPDX-License-Identifier: Apache-2.0
// Walks over the text once; see renderer.hpp.
#include "generator/render/renderer.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace attune {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Characters at which copying stops, as a table, because searching for several characters is
// slower.
constexpr std::array<bool, 256> stops() {
  std::array<bool, 256> table{};
  for (const unsigned char c : {'\n', '/', '"', '\''}) table[c] = true;
  return table;
}
constexpr std::array<bool, 256> kStops = stops();

class CommentStripper {
 public:
  explicit CommentStripper(std::string_view text) : text_(text) { out_.reserve(text.size()); }

  std::string run() {
    while (at_ < text_.size()) {
      copy_plain();
      if (at_ == text_.size()) break;
      if (text_[at_] == '\n')
        end_line();
      else if (text_[at_] == '/')
        skip_comment();
      else
        copy_literal();
    }
    if (begin_of_line_ < out_.size()) end_line();
    return std::move(out_);
  }

 private:
  // Copies up to a line end, a literal or a possible comment.
  void copy_plain() {
    const size_t begin = at_;
    while (at_ < text_.size() && !kStops[static_cast<unsigned char>(text_[at_])]) ++at_;
    out_.append(text_.data() + begin, at_ - begin);
  }

  void end_line() {
    ++at_;
    while (out_.size() > begin_of_line_ && is_blank(out_.back())) out_.pop_back();
    if (out_.size() > begin_of_line_) out_ += '\n';
    begin_of_line_ = out_.size();
  }

  void skip_comment() {
    const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (next == '/') {
      do at_ = std::min(text_.find('\n', at_ + 1), text_.size());
      while (at_ < text_.size() && text_[at_ - 1] == '\\');  // a backslash continues the comment
    } else if (next == '*') {
      const size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
      out_ += ' ';
    } else {
      copy(1);
    }
  }

  void copy_literal() {
    const char before = at_ > 0 ? text_[at_ - 1] : '\0';
    if (text_[at_] == '"' && before == 'R') return copy_raw_string();
    if (text_[at_] == '\'' && is_word(before)) return copy(1);  // 1'000 is a number
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != text_[at_] && text_[end] != '\n')
      end += text_[end] == '\\' ? 2 : 1;
    copy(end + 1 - at_);
  }

  void copy_raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return copy(1);
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const size_t end = text_.find(close, open);
    copy(end == std::string_view::npos ? text_.size() : end + close.size() - at_);
  }

  void copy(size_t count) {
    out_.append(text_.substr(at_, count));
    at_ = std::min(at_ + count, text_.size());
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string out_;
  size_t begin_of_line_ = 0;  // in out_
};

}  // namespace

std::string comment_free(std::string_view text) { return CommentStripper(text).run(); }

}  // namespace attune
