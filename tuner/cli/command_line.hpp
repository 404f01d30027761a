// SPDX-License-Identifier: Apache-2.0
// Commands with options and positional words, parsed by CLI11. Only command_line.cpp includes that
// library, because each file that includes it takes ten seconds to compile. command.hpp lists the
// commands; usage.cpp explains what is wrong with a command line.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attune::cli {

// One option or positional word of a command: a handle; the Program owns the option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  Option& not_required();
  Option& shows_default();               // shows the default in the help
  Option& values(int fewest, int most);  // how many values it takes
  Option& repeated();  // may be given several times with one value each; all are kept
  Option& one_of(std::vector<std::string> words);  // accepts only these words
  Option& between(int lowest, int highest);
  Option& positive();
  Option& not_negative();
  Option& natural();  // a uint64_t, decimal or 0x
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

// A command, or the whole program (the outermost command): a handle like Option.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  Command add_command(const std::string& name, const std::string& what);
  // Adds an option ("--name") or a positional word ("NAME"). T is std::string, a vector of strings,
  // int, uint64_t or double. `value` must outlive the parse.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& what);
  Option add_flag(const std::string& name, bool& value, const std::string& what);
  Option option(const std::string& name);
  void add_footer(const std::string& text);  // at the end of the help
  void require_command();                    // one of its subcommands must follow
  void callback(std::function<void()> run);  // runs if the command line names this command

  std::string name() const;
  std::string what() const;  // one sentence
  std::string path() const;  // "attune db show"
  bool is_program() const;
  Command program() const;
  std::vector<Command> commands() const;
  std::vector<std::string> option_names() const;  // "--json"
  struct OptionText {
    std::string name;  // "--json", or "MODEL"
    std::string what;
    bool has_value = false;
    std::vector<std::string> words;  // of one_of: the only values; empty: others
  };
  std::vector<OptionText> options() const;  // without --help

 private:
  CLI::App* app_;
};

// The reason why a command line was refused.
struct UsageFault {
  std::string what;        // one sentence from CLI11
  std::string unexpected;  // the word that no option takes, if that is the reason
  Command command;         // the last command that the line named
};

class Program {
 public:
  Program(const std::string& what, const std::string& name, const std::string& version);
  ~Program();
  Command command() const { return Command(app_.get()); }

  struct Outcome {
    std::string text;  // help or version to print; empty if a command ran
    std::optional<UsageFault> fault;
  };
  // Runs the callback of the command that `words` name. Throws whatever the callback throws.
  Outcome run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
};

// The messages of main.cpp about a wrong command line (usage.cpp).

// Turns "help tune", a form that other programs accept, into "tune --help".
std::vector<std::string> with_help_option(std::vector<std::string> words);

// Throws kInvalidArgument if a word that should name a command does not.
void check_commands(const Command& program, const std::vector<std::string>& words);

// Returns "; did you mean tune?" for a word that resembles known ones, else "".
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

// Returns one sentence that also names the help of the given command.
std::string usage_error_text(const UsageFault& fault);

}  // namespace attune::cli
