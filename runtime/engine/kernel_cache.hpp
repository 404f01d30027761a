// SPDX-License-Identifier: Apache-2.0
// KernelCache: the kernels that this process has loaded, by identity. They are never unloaded: a
// launch may still be running, and kernels are few because they do not depend on lengths. If
// several threads need a missing kernel, one of them makes it and the others wait. If threads of
// the parent were making kernels at a fork, the child makes these kernels again.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/engine/device.hpp"

namespace attune {

struct CachedKernel {
  std::shared_ptr<const LoadedKernel> kernel;
  std::string image_from;               // as in Plan
  std::vector<std::string> warnings{};  // as in Plan
};

class KernelCache {
 public:
  // Returns the kernel of the key. If it is missing, one thread calls make(). If make() throws, all
  // waiting threads get the exception, and the next call tries again.
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
