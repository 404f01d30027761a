// SPDX-License-Identifier: Apache-2.0
// Loading each kernel once; see kernel_cache.hpp.
#include "runtime/kernel_cache.hpp"

namespace attune {

CachedKernel KernelCache::get(const std::string& key, const std::function<CachedKernel()>& make) {
  std::promise<CachedKernel> promise;
  std::shared_future<CachedKernel> theirs;
  {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = kernels_.try_emplace(key);
    if (is_new)
      entry->second = promise.get_future().share();
    else
      theirs = entry->second;
  }
  if (theirs.valid()) return theirs.get();
  try {
    CachedKernel made = make();
    promise.set_value(made);
    return made;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    kernels_.erase(key);
    throw;
  }
}

}  // namespace attune
