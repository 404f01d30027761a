// SPDX-License-Identifier: Apache-2.0
// Where the engine gets compiled kernels: bundles, then stores, then the compiler, whose output is
// kept in the user store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/store_stack.hpp"
#include "runtime/bundle.hpp"
#include "runtime/device.hpp"
#include "runtime/engine_options.hpp"
#include "runtime/kernel_cache.hpp"
#include "runtime/ladder.hpp"

namespace attune {

class ImageSource {
 public:
  ImageSource(std::shared_ptr<const Device> device, const EngineOptions& options);

  // Loads each kernel at most once. Throws kWouldCompile when nothing has it and compiling is not
  // allowed; else what compiling or loading throws.
  CachedKernel kernel(const Choice& choice);
  // The same without compiling: where the kernel would be compiled, the result has no kernel and
  // says where it would come from. Throws as `kernel` does when nothing has it and there is no
  // compiler.
  CachedKernel foresee(const Choice& choice) const;
  const std::vector<Bundle>& bundles() const { return bundles_; }
  // The user's store over the others; no layers when stores are off.
  const StoreStack& stores() const { return stores_; }

 private:
  enum class Compile { kNow, kLater };
  CachedKernel obtain(const Choice& choice, Compile compile) const;
  CachedKernel make(const Choice& choice, Compile compile) const;
  CachedKernel stored(const Choice& choice, const ImageKey& key) const;
  CachedKernel compiled(const Choice& choice, const Source& source, ImageKey key) const;
  void keep(const ImageKey& key, const KernelImage& image) const;

  const std::shared_ptr<const Device> device_;
  const bool may_compile_, keep_images_;
  std::vector<Bundle> bundles_;
  StoreStack stores_;
  KernelCache kernels_;
};

}  // namespace attune
