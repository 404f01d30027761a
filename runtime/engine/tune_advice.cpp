// SPDX-License-Identifier: Apache-2.0
// Commands that tune a problem. See engine_options.hpp.
#include "runtime/engine/engine_options.hpp"

#include <fmt/format.h>

#include "generator/core/system/foreign_text.hpp"
#include "runtime/engine/options.hpp"

namespace attune {
namespace {

// Returns --target and --store, if the defaults of `attune` differ from this engine's.
std::string machine_words(const EngineOptions& options) {
  std::string words;
  if (!options.target.empty() && options.target != "auto")
    words += " --target " + shell_word(options.target);
  if (const std::filesystem::path store = user_store_of(options);
      !store.empty() && store != default_store_path())
    words += " --store " + shell_word(store.string());
  return words;
}

std::string problem_words(const Problem& asked, const EngineOptions& options) {
  return "--problem " + shell_word(to_text(asked)) + machine_words(options);
}

bool is_held(const ProgramDigest& digest, const StoreStack& stores) {
  return !digest || stores.holds_program(digest);
}

}  // namespace

std::string tune_advice(const Problem& asked, const EngineOptions& options,
                        const StoreStack& stores) {
  const bool held =
      is_held(asked.scores.score_mod, stores) && is_held(asked.scores.mask_mod, stores);
  return fmt::format(
      "{}{} finds its kernel",
      user_store_of(options).empty() ? "this context has no store; for one that has, " : "",
      held ? fmt::format("`attune tune {}`", problem_words(asked, options))
           : fmt::format("a run with ATTUNE_CAPTURE=problems.jsonl, then `attune tune --captured "
                         "problems.jsonl{}`",
                         machine_words(options)));
}

std::string reference_advice(const Problem& asked, const EngineOptions& options) {
  return fmt::format(
      "only this kernel serves it, so tuning changes nothing; `attune explain {}` "
      "says why",
      problem_words(asked, options));
}

}  // namespace attune
