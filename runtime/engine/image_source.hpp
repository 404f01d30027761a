// SPDX-License-Identifier: Apache-2.0
// ImageSource: finds compiled kernels for the engine in bundles, then stores. Otherwise it compiles
// them and keeps the images in the user store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/store_stack.hpp"
#include "runtime/bundles/bundle.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/kernel_cache.hpp"
#include "runtime/engine/ladder.hpp"

namespace attune {

class ImageSource {
 public:
  ImageSource(std::shared_ptr<const Device> device, const EngineOptions& options);

  // Returns the kernel of a choice, and loads it at most once. Throws kWouldCompile if no bundle or
  // store has the image and compiling is not allowed. Also throws errors of compiling and loading.
  CachedKernel kernel(const Choice& choice);
  // Does the same without compiling. If no bundle or store has the image, the result has no kernel,
  // and image_from names the compiler. Throws as `kernel` does if there is no compiler either.
  CachedKernel foresee(const Choice& choice) const;
  const std::vector<Bundle>& bundles() const { return bundles_; }
  // Returns the user's store over the others; it has no layers if stores are off.
  const StoreStack& stores() const { return stores_; }

 private:
  enum class Compile { kNow, kLater };
  CachedKernel obtain(const Choice& choice, Compile compile) const;
  CachedKernel make(const Choice& choice, Compile compile) const;
  CachedKernel stored(const Choice& choice, const ImageKey& key) const;
  CachedKernel as_timed(const Choice& choice, ImageKey key) const;
  CachedKernel compiled(const Choice& choice, const Source& source, ImageKey key) const;
  void keep(const ImageKey& key, const KernelImage& image) const;

  const std::shared_ptr<const Device> device_;
  const bool may_compile_, keep_images_;
  std::vector<Bundle> bundles_;
  StoreStack stores_;
  KernelCache kernels_;
};

}  // namespace attune
