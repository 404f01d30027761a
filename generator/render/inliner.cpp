// SPDX-License-Identifier: Apache-2.0
// Walks once over a template and its includes, line by line; see inliner.hpp.
#include "generator/render/inliner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr std::string_view kNamespaceBegin = "namespace attune {";
constexpr std::string_view kNamespaceEnd = "}  // namespace attune";
constexpr std::string_view kConstantsLabel = "constants of this kernel";
constexpr std::string_view kGenerated = "generated/";

// Returns the quoted path of an #include line, without "templates/"; empty for other lines.
std::string_view included_path(std::string_view line) {
  constexpr std::string_view kDirective = "#include \"", kRoot = "templates/";
  if (!line.starts_with(kDirective)) return {};
  line.remove_prefix(kDirective.size());
  if (line.starts_with(kRoot)) line.remove_prefix(kRoot.size());
  return line.substr(0, line.find('"'));
}

std::string_view take_line(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

std::string_view take_word(std::string_view* text) {
  text->remove_prefix(std::min(text->find_first_not_of(' '), text->size()));
  const std::string_view word = text->substr(0, text->find(' '));
  text->remove_prefix(word.size());
  return word;
}

std::optional<long long> number(std::string_view text) {
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

constexpr std::string_view kWhere = " // where k", kUnless = " // unless ", kElse = ", else ";

// Returns where the condition of a line begins, or npos. A line that begins with its mark is a
// comment.
size_t condition_at(std::string_view line, std::string_view mark) {
  const size_t at = line.find(mark);
  return line.find_first_not_of(' ') <= at ? at : std::string_view::npos;
}

// Returns the path after "else" in a line that includes `path`; empty if there is none. It is
// relative to the folder of `path`; a folder stands for its file of the same name.
std::string else_path(std::string_view line, std::string_view path) {
  const size_t at = line.rfind(kElse), name = path.rfind('/') + 1;
  if (path.empty() || at == std::string_view::npos) return {};
  std::string other = fmt::format("{}{}", path.substr(0, name), line.substr(at + kElse.size()));
  return other.ends_with('/') ? other.append(path.substr(name)) : other;
}

std::string_view code_of(std::string_view line) { return line.substr(0, line.find("//")); }

// Returns the first character of a line that is not a space, or 0.
char first_of(std::string_view code) {
  const size_t at = code.find_first_not_of(' ');
  return at == std::string_view::npos ? 0 : code[at];
}

// True for a line that holds one parameter and nothing else, with or without a comma at its end.
bool is_parameter(std::string_view code) {
  code.remove_prefix(std::min(code.find_first_not_of(' '), code.size()));
  return code.starts_with("const __grid_constant__ ") &&
         code.find_first_of("{}") == std::string_view::npos;
}

// Removes the comma at the end of the last line's code: the parameters that would follow it are not
// in this kernel.
void drop_last_comma(std::string* text) {
  const size_t begin = text->rfind('\n', text->size() - 2) + 1;
  const std::string_view code =
      code_of(std::string_view(*text).substr(begin, text->size() - 1 - begin));
  const size_t last = code.find_last_not_of(' ');
  if (last != std::string_view::npos && code[last] == ',') text->erase(begin + last, 1);
}

std::string_view text_of(std::string_view path, const KernelTemplate& kernel_template) {
  if (const auto text = bundled_text(path)) return *text;
  throw Error(ErrorCode::kInternal,
              fmt::format("template file \"{}\" includes \"{}\", which is not in templates/",
                          kernel_template.source_path(), path));
}

}  // namespace

std::string Inliner::run(std::string head) {
  constexpr size_t kRoom = 256 << 10;  // more than a template needs, so that the text never moves
  out_ = std::move(head);
  out_.reserve(kRoom);
  inline_path(kernel_template_.source_path());
  if (leaves_namespace_) out_.append(kNamespaceEnd).append("\n");
  return std::move(out_);
}

void Inliner::inline_path(std::string_view path_or_temporary) {
  const auto [at, is_new] = inlined_.emplace(path_or_temporary);
  if (!is_new) return;
  const std::string_view path = *at;
  if (path == kernel_template_.knobs_path()) return inline_knobs();
  if (path.starts_with(kGenerated)) return inline_generated(path);
  inline_text(path, text_of(path, kernel_template_));
}

// Writes the constants after the enumerations that they use.
void Inliner::inline_knobs() {
  inline_path("shared/attention_enums.h");
  inline_text(kConstantsLabel, preamble_.text);
}

void Inliner::inline_generated(std::string_view path) {
  for (const GeneratedPart& part : parts_)
    if (part.path == path) return inline_text(path, part.text);
  throw Error(ErrorCode::kInternal,
              fmt::format("template {} does not generate \"{}\"", kernel_template_.name(), path));
}

void Inliner::inline_text(std::string_view path, std::string_view text) {
  bool in_head = false;  // between `__global__` and the kernel's body
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = take_line(&text);
    const std::string_view code = code_of(line);
    in_head = in_head || code.find("__global__") != std::string_view::npos;
    const bool has_condition = condition_at(line, kWhere) != std::string_view::npos ||
                               condition_at(line, kUnless) != std::string_view::npos;
    if (has_condition && !code.starts_with("#include \"") && !(in_head && is_parameter(code)))
      throw Error(ErrorCode::kInternal,
                  fmt::format("{}:{} has a condition; it must be on an #include line or on a line "
                              "with one parameter of a __global__ function: \"{}\"",
                              path, number, line));
    if (in_head && first_of(code) == ')') drop_last_comma(&out_);
    in_head = in_head && code.find('{') == std::string_view::npos;
    if (const std::string_view included = included_path(line); !included.empty()) {
      const std::string other = else_path(line, included);
      if (!other.empty() && !bundled_text(other))
        throw Error(ErrorCode::kInternal,
                    fmt::format("{}:{} names \"{}\", which is not in templates/: \"{}\"", path,
                                number, other, line));
      if (is_needed(line))
        inline_path(included);
      else if (!other.empty())
        inline_path(other);
    } else if (line != "#pragma once" && !line.starts_with("// SPDX-") && is_needed(line)) {
      write(path, line);
    }
  }
}

void Inliner::write(std::string_view path, std::string_view line) {
  if (line.empty()) {
    if (!after_blank_) out_ += '\n';
    after_blank_ = true;
    return;
  }
  if (line == kNamespaceEnd) {
    leaves_namespace_ = true;
    return;
  }
  if (line == kNamespaceBegin && leaves_namespace_) {
    leaves_namespace_ = false;
    return;
  }
  if (leaves_namespace_ && !line.starts_with("//")) {
    out_.append(kNamespaceEnd).append("\n");
    leaves_namespace_ = false;
  }
  if (path != current_) write_label(path);
  out_.append(line).append("\n");
  after_blank_ = false;
}

void Inliner::write_label(std::string_view path) {
  if (!after_blank_) out_ += '\n';
  const bool continued = !labelled_.emplace(path).second;
  out_ += fmt::format("// ---- {}{}\n", path, continued ? ", continued" : "");
  current_ = path;
}

const Constant* Inliner::constant(std::string_view name) const {
  const auto found = std::find_if(preamble_.constants.begin(), preamble_.constants.end(),
                                  [&](const Constant& constant) { return constant.name == name; });
  return found == preamble_.constants.end() ? nullptr : &*found;
}

// True if the line's condition holds or the line has none. Lines that begin with a comment have no
// condition.
bool Inliner::is_needed(std::string_view line) const {
  if (line.starts_with("#include ")) line = line.substr(0, line.rfind(kElse));
  const size_t where = condition_at(line, kWhere), unless = condition_at(line, kUnless);
  const bool is_unless = unless != std::string_view::npos;
  if (where == std::string_view::npos && !is_unless) return true;
  std::string_view condition =
      line.substr(is_unless ? unless + kUnless.size() : where + kWhere.size() - 1);
  const std::string_view name = take_word(&condition), comparison = take_word(&condition),
                         value = take_word(&condition);
  const Constant* found = constant(name);
  if (comparison.empty()) return (found == nullptr) == is_unless;
  const bool is_whole = !is_unless && !value.empty() && take_word(&condition).empty();
  if (is_whole && comparison == "unless") return found != nullptr && constant(value) == nullptr;
  if (is_whole && found != nullptr) {
    if (comparison == "==") return found->value == value;
    if (comparison == "!=") return found->value != value;
    const auto left = number(found->value), right = number(value);
    if (comparison == ">" && left && right) return *left > *right;
    if (comparison == "<" && left && right) return *left < *right;
  }
  throw Error(
      ErrorCode::kInternal,
      fmt::format("template {} has \"{}\"; a condition must be a constant, alone, with \"unless\" "
                  "and another, or, if the kernel has it, with ==, !=, > or < and a value",
                  kernel_template_.name(), line));
}

std::vector<std::string> files_of(const KernelTemplate& kernel_template) {
  std::vector<std::string> files{"shared/attention_enums.h",
                                 std::string(kernel_template.source_path())};
  for (size_t i = 0; i < files.size(); ++i) {
    std::string_view text = text_of(files[i], kernel_template);
    while (!text.empty()) {
      const std::string_view line = take_line(&text), included = included_path(line);
      for (const std::string& path : {std::string(included), else_path(line, included)}) {
        if (path.empty() || path.starts_with(kGenerated) || path == kernel_template.knobs_path())
          continue;
        if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
      }
    }
  }
  return files;
}

}  // namespace attune
