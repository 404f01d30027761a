// SPDX-License-Identifier: Apache-2.0
// TrialBook: all trials of one (spec, shape) that count in this tune, including earlier trials from
// the store. It passes each new trial to the store at once.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/search/candidate.hpp"
#include "tuner/search/store_writer.hpp"

namespace attune {

class TrialBook {
 public:
  // Loads trials of at least this effort for which `counts` is true. Leaves out failed ones if
  // `retry_failed` is set.
  TrialBook(StoreWriter& store, TuningKey key,
            const std::function<bool(const TrialRecord&)>& counts, Effort effort,
            bool retry_failed);

  const TuningKey& key() const { return key_; }
  void stop_storing() { storing_ = false; }
  // Adds trials of this tune that the store may lack (if there is no store, or its disk is full).
  void recall(const std::vector<TrialRecord>& trials);
  const TrialRecord* find(const TuneCandidate& candidate, const ToolchainIdentity& toolchain) const;
  // Drops the trials of earlier tunes with noisy times, so that they are measured again.
  void forget_noisy();
  void put(const TrialRecord& trial);
  void put_winner(const WinnerRecord& winner);
  void put_image(const TrialRecord& trial, const std::string& source_digest,
                 const KernelImage& image);
  // Returns the stored winner of exactly this key, from any toolchain.
  std::optional<WinnerRecord> stored_winner() const;
  // Returns trials, best first, failed last.
  std::vector<TrialRecord> sorted() const;

 private:
  StoreWriter& store_;
  TuningKey key_;
  bool storing_ = true;
  std::map<std::string, TrialRecord> trials_;
};

}  // namespace attune
