// SPDX-License-Identifier: Apache-2.0
// Owner of an open file.
#pragma once

#include <unistd.h>

#include "generator/core/system/unique_handle.hpp"

namespace attune {

struct FileDescriptorTraits {
  using Handle = int;
  static Handle none() { return -1; }
  static void close(Handle file) noexcept { ::close(file); }
};
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

}  // namespace attune
