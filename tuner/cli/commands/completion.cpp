// SPDX-License-Identifier: Apache-2.0
// `attune completion`: prints a script that completes commands and options in a shell, or a manual
// page. Both are made from the commands of this program.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tuner/cli/command.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {
namespace {

struct Options {
  bool json = false;
  std::string shell;
};

// Calls visit(command) for the command and all commands below it.
template <class Visit>
void for_each_command(const Command& command, const Visit& visit) {
  visit(command);
  for (const Command& below : command.commands()) for_each_command(below, visit);
}

// Returns the words that may follow a command: its commands, its options and --help.
std::string words_after(const Command& command) {
  std::string words;
  for (const Command& below : command.commands()) words += below.name() + " ";
  for (const Command::OptionText& option : command.options())
    if (option.name.starts_with("-")) words += option.name + " ";
  return words + "--help";
}

// The loop finds the deepest command on the line. Files are completed where no word fits.
std::string bash_text(const Command& program) {
  std::string cases;
  for_each_command(program, [&](const Command& command) {
    cases += fmt::format("    \"{}\") words=\"{}\" ;;\n", command.path(), words_after(command));
  });
  std::string paths;
  for_each_command(program, [&](const Command& command) { paths += "|" + command.path(); });
  return fmt::format(R"(# bash completion of attune: source <(attune completion bash)
_attune() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path=attune words= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "{0}|" in *"|$path ${{COMP_WORDS[i]}}|"*) path+=" ${{COMP_WORDS[i]}}" ;; esac
  done
  case $path in
{1}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _attune attune
)",
                     paths, cases);
}

std::string zsh_text(const Command& program) {
  return "#compdef attune\n# zsh completion of attune: source <(attune completion zsh)\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_text(program);
}

std::string first_sentence(const std::string& text) { return text.substr(0, text.find(". ")); }

std::string quoted(const std::string& text) {
  std::string escaped;
  for (const char c : text)
    escaped += c == '\'' || c == '\\' ? fmt::format("\\{}", c) : std::string(1, c);
  return "'" + escaped + "'";
}

std::string fish_text(const Command& program) {
  std::string text = "# fish completion of attune: attune completion fish | source\n";
  for_each_command(program, [&](const Command& command) {
    std::string seen;  // the words of the path, each of which must be on the line
    for (std::string path = command.path(); path.find(' ') != std::string::npos;
         path.erase(path.rfind(' ')))
      seen = fmt::format("; and __fish_seen_subcommand_from {}{}", path.substr(path.rfind(' ') + 1),
                         seen);
    const std::string when = seen.empty() ? "__fish_use_subcommand" : seen.substr(6);
    for (const Command& below : command.commands())
      text += fmt::format("complete -c attune -n {} -a {} -d {}\n", quoted(when), below.name(),
                          quoted(first_sentence(below.what())));
    for (const Command::OptionText& option : command.options())
      if (option.name.starts_with("--"))
        text += fmt::format("complete -c attune -n {} -l {}{} -d {}\n", quoted(when),
                            option.name.substr(2), option.has_value ? " -r" : "",
                            quoted(first_sentence(option.what)));
  });
  return text;
}

// Protects characters that mean something to roff.
std::string roff(const std::string& text) {
  std::string escaped = text.starts_with(".") || text.starts_with("'") ? "\\&" : "";
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  return escaped;
}

std::string manual_text(const Command& program) {
  std::string text = fmt::format(
      ".TH ATTUNE 1 \"\" \"attune {}\" \"User Commands\"\n.SH NAME\nattune \\- make, tune and run "
      "attention "
      "kernels for this machine\n.SH SYNOPSIS\n.B attune\nCOMMAND [OPTIONS]\n.SH COMMANDS\n",
      ATTUNE_VERSION);
  for_each_command(program, [&](const Command& command) {
    if (command.is_program()) return;
    text += fmt::format(".SS {}\n{}.\n", roff(command.path()), roff(command.what()));
    for (const Command::OptionText& option : command.options())
      text += fmt::format(".TP\n.B {}{}\n{}.\n", roff(option.name),
                          option.has_value && option.name.starts_with("-") ? " VALUE" : "",
                          roff(option.what));
  });
  text += ".SH \"KEYS OF A PROBLEM\"\n.nf\n";
  const std::string keys = problem_help();
  for (size_t at = 0; at < keys.size();) {
    const size_t end = std::min(keys.find('\n', at), keys.size());
    text += roff(keys.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return text +
         ".fi\n.SH \"EXIT STATUS\"\n0 ok; 1 bad usage or input; 2 not supported; 3 wrong "
         "numerics; 4 device, driver or compiler missing; 5 store or file; 6 the budget "
         "ended; 7 slower than allowed; 128 + N ended by signal N.\n"
         ".SH FILES\n.I ~/.cache/attune/store.db\n";
}

int completion(const Command& program, const Options& options) {
  const std::string text = options.shell == "bash"   ? bash_text(program)
                           : options.shell == "zsh"  ? zsh_text(program)
                           : options.shell == "fish" ? fish_text(program)
                                                     : manual_text(program);
  options.json ? print_json("completion", {{"text", text}}) : print(text);
  return kOk;
}

}  // namespace

void add_completion(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_command(
      program, "completion",
      "Print a script that completes words in a shell (bash, zsh, fish), or the manual page (man)",
      "source <(attune completion bash)", &options->json);
  command.add_option("SHELL", options->shell, "bash, zsh, fish or man")
      .required()
      .one_of({"bash", "zsh", "fish", "man"});
  command.callback([program, options, exit_code] { *exit_code = completion(program, *options); });
}

}  // namespace attune::cli
