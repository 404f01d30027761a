// SPDX-License-Identifier: Apache-2.0
// Store: one SQLite file with all trials, winners and images. Each call is one transaction, which
// is committed when the call returns. The runtime calls load_winners once per family of problems
// and keeps the rows in memory, so that no launch needs SQL. store_stack.hpp searches several
// stores.
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

// Returns true to select rows of the problem with this text (to_text of its spec). An empty filter
// selects all rows.
using ProblemFilter = std::function<bool(const std::string& problem_text)>;

struct MergePlan;      // exchange.hpp
struct StoreContents;  // exchange.hpp
class Database;        // sqlite.hpp
// Returns true to select a row of this key that was measured with this toolchain at this time
// (utc_now()).
using RowFilter = std::function<bool(const TuningKey& key, const ToolchainIdentity& toolchain,
                                     const std::string& created)>;

// Thread-safe: calls on one Store are serialised. In a child process, calls on a Store that was
// opened before fork throw kStore.
class Store {
 public:
  // Opens a store. kReadWrite creates the file (0600) and its directory (0700), and migrates an
  // older schema. Throws kStore with the path and the fault: not a database, written by a newer
  // attune (kReadWrite only), writable by others, unwritable directory. If the file is damaged,
  // kReadOnly throws; kReadWrite renames it to <name>.corrupt-<time> and starts a new file, also in
  // later calls. Calls throw kStore "busy" if another process holds the lock for 10 s, and "full"
  // on a full disk; the store stays usable.
  static Store open(const std::filesystem::path& path, StoreMode mode);
  // Opens a store as kReadOnly. Returns nullopt if the file is missing, or is still empty because a
  // process is just creating it.
  static std::optional<Store> open_existing(const std::filesystem::path& path);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  const std::filesystem::path& path() const;

  // Stores a trial. It replaces a former trial of the same (key, toolchain, arch, config), unless
  // the former trial was measured with a higher effort under the same conditions.
  void put_trial(const TuningKey& key, const TrialRecord& trial);
  // Returns the trials of the key's spec, shape, device and policy, of all toolchains, oldest
  // first.
  std::vector<TrialRecord> trials(const TuningKey& key) const;
  std::vector<StoredTrial> all_trials() const;

  // Stores a winner. It replaces the former winner of the same (key, toolchain) by the rule of
  // put_trial. Pins stay.
  void put_winner(const TuningKey& key, const WinnerRecord& winner);
  // Returns winners that were measured on this device (equal digest), of the wanted problems and
  // all policies. The engine filters by template digest. Sorted: pinned first, then by effort, then
  // newest.
  std::vector<WinnerRecord> load_winners(const DeviceIdentity& device,
                                         const ProblemFilter& wanted = nullptr) const;
  // Returns winners that were measured on this CPU with other thread counts, in the same order.
  std::vector<WinnerRecord> load_winners_of_other_threads(
      const DeviceIdentity& device, const ProblemFilter& wanted = nullptr) const;
  std::vector<WinnerRecord> all_winners() const;
  // If winner.pinned, makes it the key's only pin, besides the tuned winner. Otherwise removes the
  // key's pin.
  void set_pinned(const TuningKey& key, const WinnerRecord& winner);

  // Stores an image with its SHA-256. image() finds it by spec, arch, config, template name,
  // compiler (if named) and source_digest, not by template digest. A damaged image is logged and
  // counts as missing (nullopt), and the next put_image replaces it.
  void put_image(const ImageKey& key, const KernelImage& image);
  std::optional<KernelImage> image(const ImageKey& key) const;
  // Returns the stored image with which this winner was measured, even if the template's source has
  // changed since.
  std::optional<StoredImage> image_of(const WinnerRecord& winner) const;

  // Returns all programs. They are stored with trials, winners and images whose problems name them.
  std::vector<StoredProgram> programs() const;

  // Returns all rows, read in one transaction, so that a winner always comes with its image.
  StoreContents contents(bool with_images) const;

  // Merges rows of another store by the rule of exchange.hpp, in one transaction.
  MergePlan merge(const StoreContents& from);
  // Returns what merge would do, and changes nothing.
  MergePlan plan_merge(const StoreContents& from) const;

  StoreStats stats() const;
  // Returns faults found by SQLite's integrity check and by hashing each image again; empty =
  // sound.
  std::vector<std::string> verify() const;
  // Deletes images that no winner and no trial of a default config names. Also deletes trials,
  // winners and images of toolchains for which `is_live` returns false; null keeps all. Pins stay.
  // With max_bytes, also deletes the oldest images until the file fits; they are compiled again
  // when needed. Then vacuums. Returns the numbers of deleted rows.
  StoreStats collect_garbage(const std::function<bool(const ToolchainIdentity&)>& is_live = nullptr,
                             int64_t max_bytes = 0);
  // Deletes the trials and winners that the filter selects, and rows that only they name, then
  // vacuums. Pins stay. Returns the numbers of deleted rows.
  StoreStats remove(const RowFilter& takes);

 private:
  struct Impl;
  StoreStats shrink(const std::function<void(Database&)>& work);
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attune
