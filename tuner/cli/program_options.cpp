// SPDX-License-Identifier: Apache-2.0
// Reads a caller's programs from files or texts; see program_options.hpp.
#include "tuner/cli/program_options.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "generator/core/system/error.hpp"
#include "generator/core/system/foreign_text.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {
namespace {

// True if the word is a program's text: a program returns on every path, and a file's name seldom
// contains "return" and a space.
bool is_text(const std::string& word) { return word.find("return ") != std::string::npos; }

// True if the word looks like a program without `return`: it has characters that file names seldom
// have.
bool is_expression(const std::string& word) {
  std::error_code failed;
  return !is_text(word) && word.find_first_of("<>=&|()*; ") != std::string::npos &&
         !std::filesystem::exists(word, failed);
}

ProgramDigest read_program(const std::string& word, score::Kind kind, const std::string& name) {
  if (is_expression(word))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--{0} is \"{1}\", and no file has that name; must be a file, or the "
                            "text of a program with return: 'return {1};'",
                            name == "score_mod" ? "score-mod" : "mask-mod", word));
  const UserProgram& made =
      is_text(word) ? read_user_program(word, kind, name) : load_user_program(word, kind);
  for (const std::string& warning : made.warnings) print_notice("attune: warning: " + warning);
  return made.digest;
}

void give(const ProgramDigest& digest, const char* name, ProgramDigest ScoreFields::*field,
          Problem* problem) {
  if (!digest) return;
  if (problem->scores.*field)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--{0}-mod is given, and problem {1} has {0}_mod={2}; must be only one of them",
                    name, to_text(*problem), to_text(problem->scores.*field)));
  problem->scores.*field = digest;
}

}  // namespace

void add_program_options(Command command, ProgramOptions* options) {
  command.add_option("--score-mod", options->score_mod,
                     "Program in the score language that returns the new score, as a file or as "
                     "text; applies to every problem. Its first lines, // capture NAME: TYPE[RANK] "
                     "and // scalar NAME: TYPE, declare its inputs");
  command.add_option("--mask-mod", options->mask_mod,
                     "Like --score-mod, for a program that returns true if a key is visible");
}

std::function<void(Problem*)> giver_of(const ProgramOptions& options) {
  ProgramDigest score, mask;
  if (!options.score_mod.empty())
    score = read_program(options.score_mod, score::Kind::kScore, "score_mod");
  if (!options.mask_mod.empty())
    mask = read_program(options.mask_mod, score::Kind::kMask, "mask_mod");
  return [score, mask](Problem* problem) {
    give(score, "score", &ScoreFields::score_mod, problem);
    give(mask, "mask", &ScoreFields::mask_mod, problem);
  };
}

Problem parse_problem_with(const ProgramOptions& options, const std::string& text) {
  Problem problem = read_problem(text, TextLengths::kRequired, TextFiles::kRead);
  giver_of(options)(&problem);
  validate(problem);
  return problem;
}

void require_programs(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) {
    if (problem.scores.score_mod)
      user_program(problem.scores.score_mod, score::Kind::kScore, "score_mod");
    if (problem.scores.mask_mod)
      user_program(problem.scores.mask_mod, score::Kind::kMask, "mask_mod");
  }
}

std::string program_words(const Problem& problem) {
  std::string words;
  if (problem.scores.score_mod)
    words +=
        " --score-mod " +
        shell_word(user_program(problem.scores.score_mod, score::Kind::kScore, "score_mod").text);
  if (problem.scores.mask_mod)
    words += " --mask-mod " +
             shell_word(user_program(problem.scores.mask_mod, score::Kind::kMask, "mask_mod").text);
  return words;
}

std::string program_texts(const SpecFields& spec) {
  std::string texts;
  const auto add = [&](const ProgramDigest& digest, const char* field) {
    if (!digest) return;
    const UserProgram* const known = find_user_program(digest);
    std::string source = known != nullptr ? known->source : "(its text is not stored here)";
    if (!source.ends_with('\n')) source += '\n';
    texts += fmt::format("{} {}\n{}", field, to_text(digest), source);
  };
  add(spec.scores.score_mod, "score_mod");
  add(spec.scores.mask_mod, "mask_mod");
  return texts;
}

}  // namespace attune::cli
