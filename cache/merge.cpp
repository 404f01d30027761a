// SPDX-License-Identifier: Apache-2.0
// Store::merge: each incoming row against the row of the same identity, by the rule of
// exchange.hpp. A winner is taken as it was measured, never derived anew from mixed trials: those
// of different runs were not timed side by side.
#include <fmt/format.h>

#include "cache/exchange.hpp"
#include "cache/store_impl.hpp"
#include "cache/store_rows.hpp"
#include "generator/core/kernel_spec.hpp"

namespace attune {
namespace {

// What the rule looks at in a trial or winner.
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

Evidence evidence(const TrialRecord& t) { return {t.effort, true, t.timing.samples, t.created}; }
Evidence evidence(const WinnerRecord& w) {
  return {w.effort, w.complete, w.timing.samples, w.created};
}

std::string describe(const TuningKey& key, const std::string& arch, const Config& config) {
  return fmt::format("{} on {}: {} {}", to_text(problem_of(key.spec, key.shape)),
                     key.device.name.empty() ? key.device.arch : key.device.name, arch,
                     config.to_text());
}

TuningKey key_of(const WinnerRecord& w) { return {w.spec, w.shape, w.device, w.policy}; }

MergeStep merge_trial(Database& database, const StoredTrial& row, bool dry_run) {
  const auto mine = find_trial(database, row.key, row.trial);
  const Verdict verdict =
      mine ? judge(evidence(*mine), evidence(row.trial)) : Verdict{MergeAction::kAdd, "new"};
  if (verdict.action != MergeAction::kKeep && !dry_run) replace_trial(database, row.key, row.trial);
  return {verdict.action, "trial", describe(row.key, row.trial.arch, row.trial.config),
          verdict.why};
}

MergeStep merge_pin(Database& database, const WinnerRecord& pin, bool dry_run) {
  const TuningKey key = key_of(pin);
  const bool taken = has_pin(database, key);
  if (!taken && !dry_run) replace_winner(database, key, pin);
  return {taken ? MergeAction::kKeep : MergeAction::kAdd, "pin",
          describe(key, pin.arch, pin.config), taken ? "there is a pin already" : "new"};
}

MergeStep merge_winner(Database& database, const WinnerRecord& winner, bool dry_run) {
  if (winner.pinned) return merge_pin(database, winner, dry_run);
  const TuningKey key = key_of(winner);
  const auto mine = find_winner(database, key, winner);
  const Verdict verdict =
      mine ? judge(evidence(*mine), evidence(winner)) : Verdict{MergeAction::kAdd, "new"};
  if (verdict.action != MergeAction::kKeep && !dry_run) replace_winner(database, key, winner);
  return {verdict.action, "winner", describe(key, winner.arch, winner.config), verdict.why};
}

MergeStep merge_image(Database& database, const StoredImage& row, bool dry_run) {
  const bool sound = find_image(database, row.key).has_value();
  if (!sound && !dry_run) replace_image(database, row);
  return {sound ? MergeAction::kKeep : MergeAction::kAdd, "image",
          fmt::format("{} {} {}", to_problem_text(row.key.spec), row.key.arch,
                      row.key.config.to_text()),
          sound ? "the same" : "new"};
}

MergePlan merge_rows(Database& database, const StoreContents& from, bool dry_run) {
  MergePlan plan;
  for (const StoredTrial& row : from.trials)
    plan.steps.push_back(merge_trial(database, row, dry_run));
  for (const WinnerRecord& row : from.winners)
    plan.steps.push_back(merge_winner(database, row, dry_run));
  for (const StoredImage& row : from.images)
    plan.steps.push_back(merge_image(database, row, dry_run));
  return plan;
}

}  // namespace

MergePlan Store::merge(const StoreContents& from, bool dry_run) {
  const auto work = [&](Database& database) { return merge_rows(database, from, dry_run); };
  return dry_run ? impl_->read(work) : impl_->write(work);
}

}  // namespace attune
