// SPDX-License-Identifier: Apache-2.0
// `attune completion`: prints a script that completes commands and options in a shell, or a manual
// page. Both are made from the commands of this program.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "generator/core/problem/dtype.hpp"
#include "generator/core/problem/problem_fields.hpp"
#include "generator/template_registry.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/models/model_table.hpp"

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
    words += option.name.starts_with("-") ? option.name + " "
                                          : fmt::format("{}{}", fmt::join(option.words, " "),
                                                        option.words.empty() ? "" : " ");
  return words + "--help";
}

// Splits "bf16, fp16" or "llama mistral" into its words.
std::vector<std::string> split_words(std::string_view text, const char* separators = ", ") {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(separators, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// Returns the values of a problem's key if they are a list of words: "none, causal_top_left".
std::vector<std::string> values_of(const ProblemKey& key) {
  std::vector<std::string> words;
  for (const std::string& part : split_words(key.accepted, ",")) {
    const std::string word = part.substr(std::min(part.find_first_not_of(' '), part.size()));
    const bool is_word =
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos &&
        word.find_first_of("abcdefghijklmnopqrstuvwxyz") == 0;
    if (!is_word) return {};
    words.push_back(word);
  }
  return words.size() > 1 ? words : std::vector<std::string>{};
}

std::vector<std::string> model_types() {
  std::set<std::string> types;
  for (const ModelRow* row : all_model_rows())
    for (std::string& type : split_words(row->types, " ")) types.insert(std::move(type));
  return {types.begin(), types.end()};
}

std::vector<std::string> arch_words() {
  std::vector<std::string> words{"native", "cpu"};
  words.insert(words.end(), known_cuda_archs().begin(), known_cuda_archs().end());
  const std::vector<std::string> gpus = gpu_names();
  words.insert(words.end(), gpus.begin(), gpus.end());
  return words;
}

// Returns the values that an option's value is chosen from, or begins with; empty: any text.
std::vector<std::string> values_of(const Command::OptionText& option) {
  if (!option.words.empty()) return option.words;
  if (option.name == "--as") return model_types();
  if (option.name == "--arch") return arch_words();
  if (option.name == "--target") return {"auto", "cuda", "cpu"};
  if (option.name == "--accuracy") return {"accurate", "fast", "split"};
  if (option.name == "--v-layout") return {"rows", "transposed"};
  std::vector<std::string> words;
  if (option.name == "--template")
    for (const KernelTemplate* one : all_templates()) words.emplace_back(one->name());
  if (option.name == "--dtype" || option.name == "--kv-dtype")
    for (const ProblemKey& key : problem_keys())
      if (key.name == "dtype") words = values_of(key);
  if (option.name == "--problem" || option.name == "--only")
    for (const ProblemKey& key : problem_keys()) words.push_back(key.name + "=");
  return words;
}

// Returns the cases of bash_text by which options have values. Options with equal values share one.
std::string value_cases(const Command& program) {
  std::map<std::string, std::string> options;  // by values: "attune tune --dtype"|"..."
  for_each_command(program, [&](const Command& command) {
    for (const Command::OptionText& option : command.options()) {
      if (!option.has_value || !option.name.starts_with("--")) continue;
      std::string& known = options[fmt::format("{}", fmt::join(values_of(option), " "))];
      known += fmt::format("{}\"{} {}\"", known.empty() ? "" : "|", command.path(), option.name);
    }
  });
  std::string cases;
  for (const auto& [values, names] : options)
    cases += fmt::format("    {}) words=\"{}\" ;;\n", names, values);
  return cases;
}

// Returns the cases of bash_text by which keys of a problem have values.
std::string key_cases() {
  std::string cases;
  for (const ProblemKey& key : problem_keys())
    if (const auto values = values_of(key); !values.empty())
      cases += fmt::format("    *\" {}\") words=\"{}\" ;;\n", key.name, fmt::join(values, " "));
  return cases;
}

// The loop finds the deepest command on the line. Bash splits words at "=", zsh does not: `before`
// is the option or the key of a problem whose value is completed, `head` the part of a list before
// the last comma. Files are completed where no word fits.
std::string bash_text(const Command& program) {
  std::string cases;
  for_each_command(program, [&](const Command& command) {
    cases += fmt::format("    \"{}\") words=\"{}\" ;;\n", command.path(), words_after(command));
  });
  std::string paths;
  for_each_command(program, [&](const Command& command) { paths += "|" + command.path(); });
  std::string keys;
  for (const ProblemKey& key : problem_keys()) keys += key.name + "= ";
  return fmt::format(R"(# bash completion of attune: source <(attune completion bash)
_attune() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path=attune before= words= head= i=
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "{0}|" in *"|$path ${{COMP_WORDS[i]}}|"*) path+=" ${{COMP_WORDS[i]}}" ;; esac
  done
  i=${{COMP_WORDS[COMP_CWORD-1]}}
  if [ "$current" = = ]; then
    before=$i current= i==
  elif [ "$i" = = ]; then
    before=${{COMP_WORDS[COMP_CWORD-2]}}
  elif [[ $current == *=* ]]; then
    before=${{current%=*}} head=$before= current=${{current##*=}} i==
  else
    before=$i
  fi
  case $current in *,*) head+=${{current%,*}}, current=${{current##*,}} ;; esac
  if [ "$i" = = ] && [[ $before != -* ]]; then
    case $head in *[!=]) before=--problem ;; *) before=${{before##*,}} ;; esac
  fi
  case "$path $before" in
{1}    *" --problem") words="{2}" ;;
{3}    *) case $path in
{4}    esac ;;
  esac
  case $words in *=*) compopt -o nospace 2>/dev/null ;; esac
  COMPREPLY=($(compgen -P "$head" -W "$words" -- "$current"))
}}
complete -o default -F _attune attune
)",
                     paths, value_cases(program), keys, key_cases(), cases);
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
        text += fmt::format(
            "complete -c attune -n {} -l {}{}{} -d {}\n", quoted(when), option.name.substr(2),
            option.has_value ? " -r" : "",
            values_of(option).empty()
                ? ""
                : fmt::format(" -a {}",
                              quoted(fmt::format("{}", fmt::join(values_of(option), " ")))),
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
