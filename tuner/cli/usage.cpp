// SPDX-License-Identifier: Apache-2.0
// Reports unknown commands and options; see command_line.hpp.
#include "tuner/cli/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "generator/core/system/error.hpp"

namespace attune::cli {
namespace {

// Returns the least number of insertions, deletions and replacements that turn one word into the
// other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// True if the words differ only in two neighbouring letters that are swapped.
bool is_swapped(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  const auto at = std::mismatch(a.begin(), a.end(), b.begin());
  std::string swapped = a;
  const auto i = static_cast<size_t>(at.first - a.begin());
  if (i + 1 >= a.size()) return false;
  std::swap(swapped[i], swapped[i + 1]);
  return swapped == b;
}

bool begins_with(const std::string& text, const std::string& beginning) {
  return !beginning.empty() && text.compare(0, beginning.size(), beginning) == 0;
}

// Adds the paths of the commands below `at` that have the option.
void add_owners(const Command& at, const std::string& option, std::vector<std::string>* owners) {
  for (const Command& one : at.commands()) {
    const std::vector<std::string> names = one.option_names();
    if (std::find(names.begin(), names.end(), option) != names.end()) owners->push_back(one.path());
    add_owners(one, option, owners);
  }
}

// Returns "; attune emit and attune export have it": the commands that have the option. If none has
// it, returns a suggestion.
std::string whose_option(const std::string& word, const Command& command) {
  std::vector<std::string> owners;
  add_owners(command.program(), word.substr(0, word.find('=')), &owners);
  if (owners.empty()) return suggestion(word, command.option_names());
  if (owners.size() == 1) return fmt::format("; {} has it", owners.front());
  return fmt::format("; {} and {} have it", fmt::join(owners.begin(), owners.end() - 1, ", "),
                     owners.back());
}

// Returns the command of `at` that `word` names; nullopt if `word` is an option of `at`. Throws for
// an unknown word.
std::optional<Command> command_named(const Command& at, const std::string& word) {
  std::vector<std::string> known;
  for (const Command& one : at.commands()) {
    if (one.name() == word) return one;
    known.push_back(one.name());
  }
  if (begins_with(word, "-")) {
    std::vector<std::string> options = at.option_names();
    const std::string name = word.substr(0, word.find('='));
    if (name == "-h" || name == "-V" ||
        std::find(options.begin(), options.end(), name) != options.end())
      return std::nullopt;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is not an option of {}{} ({} --help lists the commands)", word,
                            at.path(), suggestion(name, options), at.path()));
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "{}{}; commands of {} are {}",
          word.empty() ? "no command was given" : fmt::format("\"{}\" is not a command", word),
          word.empty() ? "" : suggestion(word, known), at.path(), fmt::join(known, ", ")));
}

}  // namespace

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  std::vector<std::string> near;
  const size_t allowed = std::max<size_t>(1, word.size() / 3);
  for (const std::string& one : known)
    if (distance(word, one) <= allowed || is_swapped(word, one) || begins_with(one, word))
      near.push_back(one);
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

std::vector<std::string> with_help_option(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

void check_commands(const Command& program, const std::vector<std::string>& words) {
  std::optional<Command> at = program;
  for (size_t i = 0; at && !at->commands().empty(); ++i)
    at = command_named(*at, i < words.size() ? words[i] : std::string());
}

std::string usage_error_text(const UsageFault& fault) {
  std::string what = fault.what;
  const std::string& word = fault.unexpected;
  const std::string path = fault.command.path();
  if (!word.empty())
    what = begins_with(word, "-") ? fmt::format("\"{}\" is not an option of {}{}", word, path,
                                                whose_option(word, fault.command))
                                  : fmt::format("\"{}\" was not expected", word);
  std::replace(what.begin(), what.end(), '\n', ' ');
  return fmt::format("{} ({} --help lists the {})", what, path,
                     fault.command.is_program() ? "commands" : "options");
}

}  // namespace attune::cli
