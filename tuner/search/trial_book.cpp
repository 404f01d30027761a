// SPDX-License-Identifier: Apache-2.0
// Keeps the trials of one key in memory and in the store; see trial_book.hpp.
#include "tuner/search/trial_book.hpp"

#include <algorithm>

#include "cache/winner_rule.hpp"

namespace attune {
namespace {

std::string identity(const ToolchainIdentity& toolchain, const std::string& arch,
                     const Config& config) {
  return toolchain.digest() + " " + arch + " " + config.to_text();
}

}  // namespace

TrialBook::TrialBook(StoreWriter& store, TuningKey key,
                     const std::function<bool(const TrialRecord&)>& counts, Effort effort,
                     bool retry_failed)
    : store_(store), key_(std::move(key)) {
  std::vector<TrialRecord> stored;
  store_.read([&](const Store& s) { stored = s.trials(key_); });
  for (TrialRecord& trial : stored) {
    if (!counts(trial)) continue;
    if (trial.effort < effort || (retry_failed && trial.status != TrialStatus::kOk)) continue;
    trials_[identity(trial.toolchain, trial.arch, trial.config)] = std::move(trial);
  }
}

const TrialRecord* TrialBook::find(const TuneCandidate& candidate,
                                   const ToolchainIdentity& toolchain) const {
  const auto found =
      trials_.find(identity(toolchain, candidate.family.arch.name(), candidate.config));
  return found == trials_.end() ? nullptr : &found->second;
}

void TrialBook::recall(const std::vector<TrialRecord>& trials) {
  for (const TrialRecord& trial : trials)
    trials_[identity(trial.toolchain, trial.arch, trial.config)] = trial;
}

void TrialBook::forget_noisy() {
  std::erase_if(trials_, [](const auto& one) { return is_noisy(one.second.timing); });
}

void TrialBook::put(const TrialRecord& trial) {
  trials_[identity(trial.toolchain, trial.arch, trial.config)] = trial;
  if (storing_) store_.write([key = key_, trial](Store& store) { store.put_trial(key, trial); });
}

void TrialBook::put_winner(const WinnerRecord& winner) {
  if (storing_) store_.write([key = key_, winner](Store& store) { store.put_winner(key, winner); });
}

void TrialBook::put_image(const TrialRecord& trial, const std::string& source_digest,
                          const KernelImage& image) {
  const ImageKey key{key_.spec, trial.arch, trial.toolchain, trial.config, source_digest};
  if (storing_) store_.write([key, image](Store& store) { store.put_image(key, image); });
}

std::optional<WinnerRecord> TrialBook::stored_winner() const {
  std::optional<WinnerRecord> found;
  const std::string spec = to_text(key_.spec);
  const auto is_ours = [&](const WinnerRecord& winner) {
    return !winner.pinned && to_text(winner.spec) == spec &&
           to_text(winner.shape) == to_text(key_.shape) && winner.policy.text == key_.policy.text;
  };
  store_.read([&](const Store& store) {
    const std::vector<WinnerRecord> winners =  // best first
        store.load_winners(key_.device, [&](const std::string& text) { return text == spec; });
    const auto first = std::find_if(winners.begin(), winners.end(), is_ours);
    if (first != winners.end()) found = *first;
  });
  return found;
}

std::vector<TrialRecord> TrialBook::sorted() const {
  std::vector<TrialRecord> all;
  for (const auto& [unused, trial] : trials_) all.push_back(trial);
  std::stable_sort(all.begin(), all.end(), [](const TrialRecord& a, const TrialRecord& b) {
    const bool a_failed = a.status != TrialStatus::kOk;
    const bool b_failed = b.status != TrialStatus::kOk;
    return a_failed != b_failed ? b_failed : !a_failed && a.timing.median_us < b.timing.median_us;
  });
  return all;
}

}  // namespace attune
