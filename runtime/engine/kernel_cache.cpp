// SPDX-License-Identifier: Apache-2.0
// Loading each kernel once; see kernel_cache.hpp.
#include "runtime/engine/kernel_cache.hpp"

#include <unistd.h>

#include <chrono>

namespace attune {
namespace {

bool is_ready(const std::shared_future<CachedKernel>& kernel) {
  return kernel.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

CachedKernel KernelCache::get(const std::string& key, const std::function<CachedKernel()>& make) {
  std::promise<CachedKernel> promise;
  std::shared_future<CachedKernel> theirs;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = kernels_[key];
    // No thread here makes a kernel that the parent process was making: fork copies one thread
    // only.
    const bool is_made =
        entry.kernel.valid() && (entry.maker == getpid() || is_ready(entry.kernel));
    if (is_made)
      theirs = entry.kernel;
    else
      entry = {promise.get_future().share(), getpid()};
  }
  if (theirs.valid()) return theirs.get();
  try {
    CachedKernel made = make(), kept = made;
    promise.set_value(std::move(kept));  // moved: a copy could throw, see MadeOnce
    return made;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    kernels_.erase(key);
    throw;
  }
}

}  // namespace attune
