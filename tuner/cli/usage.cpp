// SPDX-License-Identifier: Apache-2.0
// Unknown commands and options; see usage.hpp.
#include "tuner/cli/usage.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "generator/core/error.hpp"

namespace attune::cli {
namespace {

// Insertions, deletions and replacements that turn one word into the other.
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

// Two letters of one word stand the other way round in the other.
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

// "; did you mean tune?" or nothing.
std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  std::vector<std::string> near;
  const size_t allowed = std::max<size_t>(1, word.size() / 3);
  for (const std::string& one : known)
    if (distance(word, one) <= allowed || is_swapped(word, one) || begins_with(one, word))
      near.push_back(one);
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : path_of(*app.get_parent()) + " " + app.get_name();
}

// The command that was parsed last.
const CLI::App& deepest(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : deepest(*parsed.front());
}

// The subcommand of `app` that `word` names. Throws for an unknown one; nullptr when it is an option.
const CLI::App* command_named(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::App* one : subcommands(app)) {
    if (one->get_name() == word) return one;
    known.push_back(one->get_name());
  }
  if (begins_with(word, "-")) return nullptr;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{}{}; commands of {} are {}",
                  word.empty() ? "no command was given" : fmt::format("\"{}\" is no command", word),
                  word.empty() ? "" : suggestion(word, known), path_of(app),
                  fmt::join(known, ", ")));
}

}  // namespace

std::vector<std::string> with_help_option(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

void check_commands(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* at = &program;
  for (size_t i = 0; at != nullptr && !subcommands(*at).empty(); ++i)
    at = command_named(*at, i < words.size() ? words[i] : std::string());
}

std::string usage_error_text(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& command = deepest(program);
  std::string what = error.what();
  const std::vector<std::string> rest = program.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !rest.empty()) {
    const std::string& word = rest.front();
    what = begins_with(word, "-")
               ? fmt::format("\"{}\" is no option of {}{}", word, path_of(command),
                             suggestion(word, option_names(command)))
               : fmt::format("\"{}\" was not expected", word);
  }
  std::replace(what.begin(), what.end(), '\n', ' ');
  return fmt::format("{} ({} --help lists the {})", what, path_of(command),
                     command.get_parent() == nullptr ? "commands" : "options");
}

}  // namespace attune::cli
