// SPDX-License-Identifier: Apache-2.0
// StoreStack of a library that was built without SQLite (ATTUNE_SQLITE=OFF) and runs only from
// bundles. It has no layers, and refuses stores that a caller names.
#include <string>

#include "cache/store_stack.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& layer) {
  throw Error(
      ErrorCode::kStore,
      "store " + layer.string() +
          ": this libattune was built without SQLite (ATTUNE_SQLITE=OFF) and opens no store; "
          "give it a bundle of `attune export` instead");
}

}  // namespace

bool StoreStack::available() { return false; }

std::optional<std::string> StoreStack::refusal_of(const std::filesystem::path&) {
  return std::nullopt;  // the constructor refuses it
}

StoreStack::StoreStack(std::vector<std::filesystem::path> layers) : layers_(std::move(layers)) {
  if (!layers_.empty()) refuse(layers_.front());
}

std::vector<WinnerRecord> StoreStack::load_winners(const DeviceIdentity&,
                                                   const ProblemFilter&) const {
  return {};
}

void StoreStack::load_programs() const {}

bool StoreStack::holds_program(const ProgramDigest&) const { return false; }

std::optional<KernelImage> StoreStack::image(const ImageKey&) const { return std::nullopt; }

void StoreStack::put_image(const ImageKey&, const KernelImage&) const { refuse("of the user"); }

}  // namespace attune
