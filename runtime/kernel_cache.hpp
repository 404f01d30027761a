// SPDX-License-Identifier: Apache-2.0
// KernelCache: the kernels loaded so far in this process, by identity. They stay, because a launch
// may still be under way, and because specs and configs are few, whatever the lengths. If several
// threads ask for a kernel that is missing, one of them makes it and the others wait. A child after
// fork makes the kernels again that threads of its parent were making.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/device.hpp"

namespace attune {

struct CachedKernel {
  std::shared_ptr<const LoadedKernel> kernel;
  std::string image_from;               // as in Plan
  std::vector<std::string> warnings{};  // as in Plan
};

class KernelCache {
 public:
  // Returns the kernel of the key. Calls make() at most once per key at a time. If it throws, all
  // waiting threads get the exception and the key is free again.
  CachedKernel get(const std::string& key, const std::function<CachedKernel()>& make);

 private:
  std::mutex mutex_;
  struct Entry {
    std::shared_future<CachedKernel> kernel;
    int maker = 0;  // process that makes it
  };
  std::unordered_map<std::string, Entry> kernels_;
};

}  // namespace attune
