// SPDX-License-Identifier: Apache-2.0
// StoreStack: the layers a lookup goes through: the user's store, over the site's, over a shipped
// one. It holds paths, not connections: each call opens, reads and closes, so that it survives fork
// and holds no file between launches.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.hpp"

namespace attune {

// Thread-safe. A layer that is missing is passed over; one that cannot be read is logged and passed
// over.
class StoreStack {
 public:
  // False where the library was built without SQLite (ATTUNE_SQLITE=OFF).
  static bool available();
  // Returns why the store at that path cannot be read; nothing where it can, or is missing.
  static std::optional<std::string> refusal_of(const std::filesystem::path& store);
  // Uppermost first. Throws kStore when there are layers and stores are not available.
  explicit StoreStack(std::vector<std::filesystem::path> layers);

  const std::vector<std::filesystem::path>& layers() const { return layers_; }
  // Winners of all layers for this device, of the problems that are wanted, for a CPU also those of other numbers of threads. Of
  // several for one (spec, shape, policy, toolchain, threads): a pin before tuned ones, then the
  // higher effort, then the newer, then the upper layer. Sorted by the same rule, so the first
  // match is the best.
  std::vector<WinnerRecord> load_winners(const DeviceIdentity& device,
                                         const ProblemFilter& wanted = nullptr) const;
  // Makes the programs that any layer holds known to this process.
  void load_programs() const;
  // Whether the uppermost layer, if there is one, has that program's text.
  bool holds_program(const ProgramDigest& digest) const;
  // From the uppermost layer that has a sound one.
  std::optional<KernelImage> image(const ImageKey& key) const;
  // Into the uppermost layer, of which there must be one. Throws as Store does.
  void put_image(const ImageKey& key, const KernelImage& image) const;

 private:
  std::vector<std::filesystem::path> layers_;
};

}  // namespace attune
