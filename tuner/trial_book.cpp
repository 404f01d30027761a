// SPDX-License-Identifier: Apache-2.0
// Trials of one key in memory and in the store; see trial_book.hpp.
#include "tuner/trial_book.hpp"

#include <algorithm>

#include "generator/core/error.hpp"
#include "generator/core/log.hpp"

namespace attune {
namespace {

std::string identity(const ToolchainIdentity& toolchain, const std::string& arch, const Config& config) {
  return toolchain.digest() + " " + arch + " " + config.to_text();
}

}  // namespace

TrialBook::TrialBook(Store* store, TuningKey key, const std::set<std::string>& toolchains, Effort effort, bool retry_failed)
    : store_(store), key_(std::move(key)) {
  if (store_ == nullptr) return;
  for (TrialRecord& trial : store_->trials(key_)) {
    if (toolchains.count(trial.toolchain.digest()) == 0) continue;
    if (trial.effort < effort || (retry_failed && trial.status != TrialStatus::kOk)) continue;
    trials_[identity(trial.toolchain, trial.arch, trial.config)] = std::move(trial);
  }
}

const TrialRecord* TrialBook::find(const TuneCandidate& candidate, const ToolchainIdentity& toolchain) const {
  const auto found = trials_.find(identity(toolchain, candidate.family.arch.name(), candidate.config));
  return found == trials_.end() ? nullptr : &found->second;
}

template <class Write>
void TrialBook::write(const Write& write) {
  if (store_ == nullptr) return;
  try {
    write(*store_);
  } catch (const Error& error) {
    if (stored_all_) log(LogLevel::kWarning, std::string("not stored, the tune goes on: ") + error.what());
    stored_all_ = false;
  }
}

void TrialBook::put(const TrialRecord& trial) {
  trials_[identity(trial.toolchain, trial.arch, trial.config)] = trial;
  write([&](Store& store) { store.put_trial(key_, trial); });
}

void TrialBook::put_winner(const WinnerRecord& winner) {
  write([&](Store& store) { store.put_winner(key_, winner); });
}

void TrialBook::put_image(const TrialRecord& trial, const KernelImage& image) {
  write([&](Store& store) { store.put_image({key_.spec, trial.arch, trial.toolchain, trial.config}, image); });
}

std::optional<WinnerRecord> TrialBook::stored_winner() const {
  if (store_ == nullptr) return std::nullopt;
  for (WinnerRecord& winner : store_->load_winners(key_.device))
    if (to_text(winner.spec) == to_text(key_.spec) && to_text(winner.shape) == to_text(key_.shape) &&
        winner.policy.text == key_.policy.text)
      return std::move(winner);
  return std::nullopt;
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
