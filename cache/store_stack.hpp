// SPDX-License-Identifier: Apache-2.0
// StoreStack: looks rows up in several stores (layers): first the user's store, then the site's,
// then a shipped one. It has paths, not connections: each call opens, reads and closes. So it works
// after fork, and no file is open between launches.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.hpp"

namespace attune {

// Thread-safe. A missing layer is skipped. A layer that cannot be read is logged and skipped.
class StoreStack {
 public:
  // False if the library was built without SQLite (ATTUNE_SQLITE=OFF).
  static bool available();
  // Returns the reason why the store at a path cannot be read; nullopt if it can be read or is
  // missing.
  static std::optional<std::string> refusal_of(const std::filesystem::path& store);
  // `layers`: uppermost first. Throws kStore if there are layers and stores are not available.
  explicit StoreStack(std::vector<std::filesystem::path> layers);

  const std::vector<std::filesystem::path>& layers() const { return layers_; }
  // Returns the winners of all layers for this device and the wanted problems, for a CPU also those
  // of other thread counts. Of several for one (spec, shape, policy, toolchain, threads) only the
  // best: a pin, then the higher effort, then the newer, then the upper layer. Sorted by the same
  // rule, so the first match is the best.
  std::vector<WinnerRecord> load_winners(const DeviceIdentity& device,
                                         const ProblemFilter& wanted = nullptr) const;
  // Registers the programs of all layers in this process.
  void load_programs() const;
  // True if there is an uppermost layer and it has the text of this program.
  bool holds_program(const ProgramDigest& digest) const;
  // Returns the image from the uppermost layer that has a sound one.
  std::optional<KernelImage> image(const ImageKey& key) const;
  // Stores the image in the uppermost layer, which must exist. Throws as Store does.
  void put_image(const ImageKey& key, const KernelImage& image) const;

 private:
  std::vector<std::filesystem::path> layers_;
};

}  // namespace attune
