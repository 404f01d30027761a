// SPDX-License-Identifier: Apache-2.0
// The only file that includes CLI11; see command_line.hpp.
#include "tuner/cli/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <sstream>

namespace attune::cli {
namespace {

// Refuses NaN and infinities. Without it, NaN would pass the comparisons with a bound.
CLI::Validator finite_number() {
  return {[](std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            return is_number && !std::isfinite(value) ? text + " is not a finite number"
                                                      : std::string();
          },
          "FINITE"};
}

// Returns a validator of bounds. CLI11's own validator would print the largest number with all its
// digits.
CLI::Validator number_above(double bound, bool or_equal) {
  return {[=](std::string& text) {
            double value = 0;
            const bool is_below = CLI::detail::lexical_cast(text, value) &&
                                  (or_equal ? value < bound : value <= bound);
            return is_below ? fmt::format("{} is too small; must be {} {}", text,
                                          or_equal ? "at least" : "above", bound)
                            : std::string();
          },
          or_equal ? "NONNEGATIVE" : "POSITIVE"};
}

// Accepts decimal or 0x. CLI11 itself also takes a sign, values beyond 64 bits, and octal numbers.
CLI::Validator natural_number() {
  return {[](std::string& text) {
            const bool hex = text.starts_with("0x") || text.starts_with("0X");
            const char* const begin = text.data() + (hex ? 2 : 0);
            const char* const end = text.data() + text.size();
            uint64_t value = 0;
            const auto [at, error] = std::from_chars(begin, end, value, hex ? 16 : 10);
            if (error != std::errc() || at != end)
              return text + " is not an integer from 0 to 18446744073709551615";
            text = std::to_string(value);
            return std::string();
          },
          "INTEGER"};
}

// Refuses the next option in place of a value that was left out: CLI11 takes any word. It also
// refuses `--out=--json`; a file of such a name is written ./--json.
CLI::Validator no_option() {
  return {[](std::string& text) {
            return text.starts_with("--") ? text + " is an option; must be a value" : std::string();
          },
          ""};
}

constexpr std::string_view kWordsOf = "one of: ";

// Returns the words of Option::one_of; none for an option that takes other values.
std::vector<std::string> words_of(CLI::Option* option) {
  try {
    for (int at = 0;; ++at) {
      const std::string name = option->get_validator(at)->get_name();
      if (!name.starts_with(kWordsOf)) continue;
      std::istringstream words(name.substr(kWordsOf.size()));
      return {std::istream_iterator<std::string>(words), {}};
    }
  } catch (const CLI::OptionNotFound&) {  // it has no more validators
    return {};
  }
}

// Returns the command that was parsed last.
CLI::App* deepest(CLI::App* app) {
  const std::vector<CLI::App*> parsed = app->get_subcommands();
  return parsed.empty() ? app : deepest(parsed.front());
}

UsageFault fault_of(CLI::App* program, const CLI::ParseError& error) {
  const std::vector<std::string> rest = program->remaining(true);
  const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !rest.empty();
  return {error.what(), is_extra ? rest.front() : std::string(), Command(deepest(program))};
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::not_required() {
  option_->required(false);
  return *this;
}

Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::values(int fewest, int most) {
  option_->expected(fewest, most);
  return *this;
}

Option& Option::repeated() {
  option_->take_all()->expected(1);
  return *this;
}

// The validator's name keeps the words for words_of.
Option& Option::one_of(std::vector<std::string> words) {
  const std::string name = fmt::format("{}{}", kWordsOf, fmt::join(words, " "));
  option_->check(CLI::IsMember(std::move(words)), name);
  return *this;
}

Option& Option::between(int lowest, int highest) {
  option_->check(CLI::Range(lowest, highest));
  return *this;
}

Option& Option::natural() {
  option_->transform(natural_number());
  return *this;
}

Option& Option::not_negative() {
  option_->check(number_above(0, true))->check(finite_number());
  return *this;
}

Option& Option::positive() {
  option_->check(number_above(0, false))->check(finite_number());
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& what) {
  return Command(app_->add_subcommand(name, what));
}

template <class T>
Option Command::add_option(const std::string& name, T& value, const std::string& what) {
  CLI::Option* option = app_->add_option(name, value, what);
  if (!option->get_positional()) option->check(no_option());
  return Option(option);
}

template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);

Option Command::add_flag(const std::string& name, bool& value, const std::string& what) {
  return Option(app_->add_flag(name, value, what));
}

Option Command::option(const std::string& name) { return Option(app_->get_option(name)); }

void Command::add_footer(const std::string& text) {
  const std::string before = app_->get_footer();
  app_->footer(before.empty() ? text : before + "\n" + text);
}

void Command::require_command() { app_->require_subcommand(1); }

void Command::callback(std::function<void()> run) { app_->callback(std::move(run)); }

std::string Command::name() const { return app_->get_name(); }

std::string Command::what() const { return app_->get_description(); }

std::string Command::path() const {
  return is_program() ? name() : Command(app_->get_parent()).path() + " " + name();
}

bool Command::is_program() const { return app_->get_parent() == nullptr; }

Command Command::program() const {
  return is_program() ? *this : Command(app_->get_parent()).program();
}

std::vector<Command> Command::commands() const {
  std::vector<Command> found;
  for (CLI::App* one : app_->get_subcommands([](CLI::App*) { return true; }))
    found.emplace_back(one);
  return found;
}

std::vector<std::string> Command::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<Command::OptionText> Command::options() const {
  std::vector<OptionText> texts;
  for (CLI::Option* option : app_->get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    if (option == app_->get_help_ptr()) continue;
    texts.push_back({names.empty() ? option->get_name() : "--" + names.front(),
                     option->get_description(), option->get_expected_max() > 0, words_of(option)});
  }
  return texts;
}

Program::Program(const std::string& what, const std::string& name, const std::string& version)
    : app_(std::make_unique<CLI::App>(what, name)) {
  app_->set_version_flag("-V,--version", version, "Print the version");
}

Program::~Program() = default;

Program::Outcome Program::run(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // the order that CLI11 expects
  try {
    app_->parse(words);
    return {};
  } catch (const CLI::CallForVersion& version) {
    return {version.what() + std::string("\n"), {}};
  } catch (const CLI::Success&) {
    return {app_->help(), {}};
  } catch (const CLI::ParseError& error) {
    return {{}, fault_of(app_.get(), error)};
  }
}

}  // namespace attune::cli
