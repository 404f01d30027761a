// SPDX-License-Identifier: Apache-2.0
// Store::merge: compares each incoming row with the row of the same identity, by the rule of
// exchange.hpp. The rule orders all rows of one identity, so the same row stays in any order of
// merges. A winner is merged as it was measured. It is never derived again from mixed trials,
// because trials of different runs were not timed together.
#include <fmt/format.h>

#include <tuple>

#include "cache/class_spread.hpp"
#include "cache/exchange.hpp"
#include "cache/record_json.hpp"
#include "cache/store_impl.hpp"
#include "cache/store_rows.hpp"
#include "generator/core/problem/kernel_spec.hpp"

namespace attune {
namespace {

// The fields of a trial or winner that the rule compares.
struct Evidence {
  Effort effort;
  bool complete;
  int samples;
  const std::string& created;
};

struct Verdict {
  MergeAction action;
  const char* why;
};

Verdict judge(const Evidence& mine, const Evidence& theirs) {
  if (theirs.effort != mine.effort)
    return theirs.effort > mine.effort ? Verdict{MergeAction::kReplace, "higher effort"}
                                       : Verdict{MergeAction::kKeep, "lower effort"};
  if (theirs.complete != mine.complete)
    return theirs.complete ? Verdict{MergeAction::kReplace, "a search that came to its end"}
                           : Verdict{MergeAction::kKeep, "a search that was cut short"};
  if (theirs.samples != mine.samples)
    return theirs.samples > mine.samples ? Verdict{MergeAction::kReplace, "more samples"}
                                         : Verdict{MergeAction::kKeep, "fewer samples"};
  if (theirs.created != mine.created)
    return theirs.created > mine.created ? Verdict{MergeAction::kReplace, "newer"}
                                         : Verdict{MergeAction::kKeep, "older"};
  return {MergeAction::kKeep, "the same"};
}

// Compares rows with equal evidence: the greater text stays.
Verdict judge_texts(const std::string& mine, const std::string& theirs) {
  if (mine == theirs) return {MergeAction::kKeep, "the same"};
  return theirs > mine ? Verdict{MergeAction::kReplace, "as old, and last by text"}
                       : Verdict{MergeAction::kKeep, "as old, and last by text"};
}

Evidence evidence(const TrialRecord& t) { return {t.effort, true, t.timing.samples, t.created}; }
Evidence evidence(const WinnerRecord& w) {
  return {w.effort, w.complete, w.timing.samples, w.created};
}
bool alike(const Evidence& a, const Evidence& b) {
  return std::tie(a.effort, a.complete, a.samples, a.created) ==
         std::tie(b.effort, b.complete, b.samples, b.created);
}

// Returns the winner's line without the device's name, which is not part of its identity.
std::string text_of(WinnerRecord winner) {
  winner.device.name.clear();
  return winner_line(winner);
}

Verdict judge(const TuningKey& key, const TrialRecord& mine, const TrialRecord& theirs) {
  return alike(evidence(mine), evidence(theirs))
             ? judge_texts(trial_line({key, mine}), trial_line({key, theirs}))
             : judge(evidence(mine), evidence(theirs));
}
Verdict judge(const WinnerRecord& mine, const WinnerRecord& theirs) {
  return alike(evidence(mine), evidence(theirs)) ? judge_texts(text_of(mine), text_of(theirs))
                                                 : judge(evidence(mine), evidence(theirs));
}
Verdict judge_pins(const WinnerRecord& mine, const WinnerRecord& theirs) {
  if (mine.created == theirs.created) return judge_texts(text_of(mine), text_of(theirs));
  return theirs.created > mine.created ? Verdict{MergeAction::kReplace, "newer"}
                                       : Verdict{MergeAction::kKeep, "older"};
}

std::string describe(const TuningKey& key, const std::string& arch, const Config& config) {
  return fmt::format("{} on {}: {} {}", to_text(problem_of(key.spec, key.shape)),
                     key.device.name.empty() ? key.device.arch : key.device.name, arch,
                     config.to_text());
}

TuningKey key_of(const WinnerRecord& w) { return {w.spec, w.shape, w.device, w.policy}; }

MergeStep step_for(Database& database, const StoredTrial& row) {
  const auto mine = find_trial(database, row.key, row.trial);
  const Verdict verdict =
      mine ? judge(row.key, *mine, row.trial) : Verdict{MergeAction::kAdd, "new"};
  return {verdict.action, "trial", describe(row.key, row.trial.arch, row.trial.config),
          verdict.why};
}

// Judges a pin. A key has one pin, whatever its toolchain.
MergeStep step_for_pin(Database& database, const WinnerRecord& pin) {
  const TuningKey key = key_of(pin);
  const auto mine = find_pin(database, key);
  const Verdict verdict = mine ? judge_pins(*mine, pin) : Verdict{MergeAction::kAdd, "new"};
  return {verdict.action, "pin", describe(key, pin.arch, pin.config), verdict.why};
}

MergeStep step_for(Database& database, const WinnerRecord& winner) {
  if (winner.pinned) return step_for_pin(database, winner);
  const TuningKey key = key_of(winner);
  const auto mine = find_winner(database, key, winner);
  const Verdict verdict = mine ? judge(*mine, winner) : Verdict{MergeAction::kAdd, "new"};
  return {verdict.action, "winner", describe(key, winner.arch, winner.config), verdict.why};
}

MergeStep step_for(Database& database, const StoredImage& row) {
  const bool sound = find_image(database, row.key).has_value();
  return {sound ? MergeAction::kKeep : MergeAction::kAdd, "image",
          fmt::format("{} {} {}", to_problem_text(row.key.spec), row.key.arch,
                      row.key.config.to_text()),
          sound ? "the same" : "new"};
}

MergeStep step_for(Database& database, const StoredProgram& program) {
  const bool found = has_program(database, program.digest);
  return {found ? MergeAction::kKeep : MergeAction::kAdd, "program", to_text(program.digest),
          found ? "the same" : "new"};
}

void take(Database& database, const StoredTrial& row) {
  replace_trial(database, row.key, row.trial);
}
void take(Database& database, const WinnerRecord& row) {
  if (row.pinned) delete_pins(database, key_of(row));
  replace_winner(database, key_of(row), row);
}
void take(Database& database, const StoredImage& row) { replace_image(database, row); }
void take(Database& database, const StoredProgram& row) { ensure_program(database, row); }

// Calls `take_in` with each row that the rule adds or replaces.
template <class TakeIn>
MergePlan merge_rows(Database& database, const StoreContents& from, const TakeIn& take_in) {
  MergePlan plan;
  // Programs come first: writing a row also writes the programs of its problem that this process
  // knows.
  const auto merge_all = [&](const auto& rows) {
    for (const auto& row : rows) {
      plan.steps.push_back(step_for(database, row));
      if (plan.steps.back().action != MergeAction::kKeep) take_in(row);
    }
  };
  merge_all(from.programs);
  ClassSpread spread;
  for (const StoredTrial& row : from.trials)
    if (const auto mine = find_trial(database, row.key, row.trial))
      spread.add(row.key.device, *mine, row.trial);
  plan.spread = spread.sentences();
  merge_all(from.trials);
  merge_all(from.winners);
  merge_all(from.images);
  return plan;
}

}  // namespace

MergePlan Store::merge(const StoreContents& from) {
  return impl_->write([&](Database& database) {
    return merge_rows(database, from, [&](const auto& row) { take(database, row); });
  });
}

MergePlan Store::plan_merge(const StoreContents& from) const {
  return impl_->read(
      [&](Database& database) { return merge_rows(database, from, [](const auto&) {}); });
}

}  // namespace attune
