// SPDX-License-Identifier: Apache-2.0
// Store: one SQLite file with every trial, winner and image. Each call is one transaction,
// committed when it returns. Readers call load_winners once a family of problems and keep the rows in
// memory: no SQL on the launch path. Layers stand in store_stack.hpp.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/records.hpp"

namespace attune {

enum class StoreMode { kReadOnly, kReadWrite };

struct StoreStats {
  int64_t trials = 0, failed_trials = 0, winners = 0, images = 0, image_bytes = 0, file_bytes = 0,
          devices = 0, problems = 0;
  int schema_version = 0;
};

// Whether rows of a problem of this text (to_text of its spec) are wanted; an empty one wants all.
using ProblemFilter = std::function<bool(const std::string& problem_text)>;

struct MergePlan;      // exchange.hpp
struct StoreContents;  // exchange.hpp
class Database;        // sqlite.hpp
// True for rows of this key, measured with this toolchain at this time (utc_now()).
using RowFilter = std::function<bool(const TuningKey& key, const ToolchainIdentity& toolchain,
                                     const std::string& created)>;

// Thread-safe: calls on one Store are serialised. Not usable in a child after fork: every call then
// throws kStore.
class Store {
 public:
  // kReadWrite creates the file (0600) and its directory (0700) and migrates an older schema.
  // Throws kStore with the path and what is wrong: not a database, newer schema (readable, not
  // writable), writable by others, unwritable directory. A damaged file is an error to a reader; a
  // writer renames it to <name>.corrupt-<time> and starts a new one, also in later calls. Calls
  // throw kStore "busy" when another process holds the lock for 10 s, and "full" on a full disk;
  // both leave it usable.
  static Store open(const std::filesystem::path& path, StoreMode mode);
  // kReadOnly open that answers nullopt for a missing file, and for one that a process has begun and
  // that holds nothing yet.
  static std::optional<Store> open_existing(const std::filesystem::path& path);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  const std::filesystem::path& path() const;

  // Trials. put_trial replaces a former trial of the same (key, toolchain, arch, config) unless
  // that one was measured with a higher effort under the same driver.
  void put_trial(const TuningKey& key, const TrialRecord& trial);
  // All trials of the key's spec, shape, device and policy, of every toolchain; oldest first.
  std::vector<TrialRecord> trials(const TuningKey& key) const;
  std::vector<StoredTrial> all_trials() const;

  // Replaces the former winner of the same (key, toolchain) by the same rule as put_trial. A pin is
  // not touched.
  void put_winner(const TuningKey& key, const WinnerRecord& winner);
  // Winners measured on this device (digest match) of the problems that are wanted, any policy; the
  // engine filters by template digest. Pinned first, then by effort, then newest.
  std::vector<WinnerRecord> load_winners(const DeviceIdentity& device,
                                         const ProblemFilter& wanted = nullptr) const;
  // Winners measured on this very CPU with other numbers of threads, in the same order.
  std::vector<WinnerRecord> load_winners_of_other_threads(
      const DeviceIdentity& device, const ProblemFilter& wanted = nullptr) const;
  std::vector<WinnerRecord> all_winners() const;
  // winner.pinned: it becomes the key's only pin, beside the tuned winner. Not pinned: the key's
  // pin is taken away.
  void set_pinned(const TuningKey& key, const WinnerRecord& winner);

  // An image is found by its source_digest, whatever its template's digest. Images carry their
  // SHA-256. A damaged one is a miss (nullopt): it is logged, and the next put_image replaces it.
  void put_image(const ImageKey& key, const KernelImage& image);
  std::optional<KernelImage> image(const ImageKey& key) const;
  // The image that this winner was measured with, as it was stored, whatever its source would be
  // now.
  std::optional<StoredImage> image_of(const WinnerRecord& winner) const;

  // Programs are stored with the trials, winners and images of the problems that name them.
  std::vector<StoredProgram> programs() const;

  // All rows as they stood at one moment: no winner without the image that stood beside it.
  StoreContents contents(bool with_images) const;

  // Folds rows from elsewhere in, by the rule of exchange.hpp, in one transaction.
  MergePlan merge(const StoreContents& from);
  // Says what merge would do, and changes nothing.
  MergePlan plan_merge(const StoreContents& from) const;

  StoreStats stats() const;
  // Problems found by SQLite's integrity check and by re-hashing every image; empty = sound.
  std::vector<std::string> verify() const;
  // Deletes images that no winner and no default's trial names, and trials, winners and images of
  // templates that no longer exist (keep = current template digests; an empty list keeps all; pins
  // stay), then vacuums. Returns what was deleted.
  StoreStats collect_garbage(const std::vector<std::string>& keep_template_digests);
  // Deletes the trials and winners that the filter takes, and what nothing names without them, then
  // vacuums; pins stay. Returns what was deleted.
  StoreStats remove(const RowFilter& takes);

 private:
  struct Impl;
  StoreStats shrink(const std::function<void(Database&)>& work);
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attune
