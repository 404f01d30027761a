// SPDX-License-Identifier: Apache-2.0
// Lookups through layers; see store_stack.hpp.
#include "cache/store_stack.hpp"

#include <algorithm>
#include <exception>
#include <set>
#include <tuple>

#include "generator/core/system/log.hpp"

namespace attune {
namespace {

// Calls look(store) if the layer exists and is readable. Any error in it is a miss: the search goes
// on in the layer below, and no file can stop a program.
template <class Look>
void look_into(const std::filesystem::path& layer, Look&& look) {
  try {
    if (const std::optional<Store> store = Store::open_existing(layer)) look(*store);
  } catch (const std::exception& error) {
    log(LogCode::kStoreLayerPassedOver, std::string("a layer is passed over: ") + error.what());
  }
}

bool better(const WinnerRecord& a, const WinnerRecord& b) {
  return std::tie(a.pinned, a.effort, a.created) > std::tie(b.pinned, b.effort, b.created);
}

auto identity(const WinnerRecord& w) {
  return std::tuple(to_text(w.spec), to_text(w.shape), w.policy.text, w.toolchain.digest(),
                    w.device.sm_count);
}

}  // namespace

bool StoreStack::available() { return true; }

std::optional<std::string> StoreStack::refusal_of(const std::filesystem::path& store) {
  try {
    Store::open_existing(store);
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

StoreStack::StoreStack(std::vector<std::filesystem::path> layers) : layers_(std::move(layers)) {}

std::vector<WinnerRecord> StoreStack::load_winners(const DeviceIdentity& device,
                                                   const ProblemFilter& wanted) const {
  std::vector<WinnerRecord> all;
  for (const auto& layer : layers_)
    look_into(layer, [&](const Store& store) {
      for (WinnerRecord& winner : store.load_winners(device, wanted))
        all.push_back(std::move(winner));
      for (WinnerRecord& winner : store.load_winners_of_other_threads(device, wanted))
        all.push_back(std::move(winner));
    });
  std::stable_sort(all.begin(), all.end(), better);  // stable: the upper layer stays first
  std::vector<WinnerRecord> best;
  std::set<decltype(identity(std::declval<WinnerRecord>()))> seen;
  for (WinnerRecord& winner : all)
    if (seen.insert(identity(winner)).second) best.push_back(std::move(winner));
  return best;
}

void StoreStack::load_programs() const {
  for (const auto& layer : layers_) look_into(layer, [](const Store& store) { store.programs(); });
}

bool StoreStack::holds_program(const ProgramDigest& digest) const {
  bool held = false;
  if (!layers_.empty())
    look_into(layers_.front(), [&](const Store& store) {
      for (const StoredProgram& program : store.programs()) held |= program.digest == digest;
    });
  return held;
}

std::optional<KernelImage> StoreStack::image(const ImageKey& key) const {
  std::optional<KernelImage> image;
  for (const auto& layer : layers_) {
    look_into(layer, [&](const Store& store) { image = store.image(key); });
    if (image) break;
  }
  return image;
}

void StoreStack::put_image(const ImageKey& key, const KernelImage& image) const {
  Store::open(layers_.front(), StoreMode::kReadWrite).put_image(key, image);
}

}  // namespace attune
