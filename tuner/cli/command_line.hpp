// SPDX-License-Identifier: Apache-2.0
// The words of a command line: commands with options, parsed by CLI11. That library stands in
// command_line.cpp alone: a file that includes it takes ten seconds to compile. command.hpp
// lists the commands; usage.hpp says what is wrong with a line.
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

// One option or positional word of a command; a handle, the Program owns what it names.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  Option& not_required();
  Option& shows_default();                         // in the help
  Option& values(int fewest, int most);            // how many it takes
  Option& repeated();                              // one value each time it is given; all are kept
  Option& one_of(std::vector<std::string> words);  // accepts these alone
  Option& between(int lowest, int highest);
  Option& positive();
  Option& not_negative();
  Option& natural();  // a uint64_t, decimal or 0x
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

// A command, or the whole program, which is the first one; a handle like Option.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  Command add_command(const std::string& name, const std::string& what);
  // "--name" is an option, "NAME" a positional word. T is std::string, a vector of strings, int,
  // uint64_t or double. `value` outlives the parse.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& what);
  Option add_flag(const std::string& name, bool& value, const std::string& what);
  Option option(const std::string& name);
  void add_footer(const std::string& text);  // at the end of the help, below what is there
  void require_command();                    // one of its own must follow
  void callback(std::function<void()> run);  // what a command line that names it does

  std::string name() const;
  std::string path() const;  // "attune db show"
  bool is_program() const;
  Command program() const;
  std::vector<Command> commands() const;
  std::vector<std::string> option_names() const;  // "--json"

 private:
  CLI::App* app_;
};

// Why a command line was refused.
struct UsageFault {
  std::string what;        // one sentence of the library
  std::string unexpected;  // the word that nothing takes, if that is why
  Command command;         // the last that was named
};

class Program {
 public:
  Program(const std::string& what, const std::string& name, const std::string& version);
  ~Program();
  Command command() const { return Command(app_.get()); }

  struct Outcome {
    std::string text;  // help or version to print; empty: a command ran
    std::optional<UsageFault> fault;
  };
  // Runs the callback of the command that `words` name. Throws what it throws.
  Outcome run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace attune::cli
