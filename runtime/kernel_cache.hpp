// SPDX-License-Identifier: Apache-2.0
// Kernels loaded so far in this process, by identity. They stay, because a launch may still be
// under way and because specs and configs are few, whatever the lengths. When several threads ask
// for a kernel that is not there yet, one of them makes it and the others wait. A child after fork makes anew what threads of
// its parent were making.
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
  // Calls make() at most once per key at a time. When it throws, all who wait get the exception and
  // the key is free again.
  CachedKernel get(const std::string& key, const std::function<CachedKernel()>& make);

 private:
  std::mutex mutex_;
  struct Entry {
    std::shared_future<CachedKernel> kernel;
    int maker = 0;  // its process
  };
  std::unordered_map<std::string, Entry> kernels_;
};

}  // namespace attune
