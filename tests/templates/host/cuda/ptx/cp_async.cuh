// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/cp_async.cuh where a kernel runs in fibers: copies happen as
// late as a wait allows.
#pragma once

#include <deque>
#include <map>

#include "cuda/ptx/shared_memory.cuh"
#include "tests/templates/host/block_of_fibers.hpp"

namespace attune {

struct LateCopy {
  unsigned to;
  const void* from;
  int bytes, size;
};
inline std::map<unsigned, std::deque<std::vector<LateCopy>>> late_copies;  // groups, by thread

inline void add_late_copy(const LateCopy& copy) {
  auto& groups = late_copies[threadIdx.x];
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back(copy);
}
template <int>
void cp_async_16(unsigned to, const void* from, int bytes) {
  add_late_copy({to, from, bytes, 16});
}
inline void cp_async_4(unsigned to, const void* from, int bytes) {
  add_late_copy({to, from, bytes, 4});
}
inline void cp_async_8(unsigned to, const void* from, int bytes) {
  add_late_copy({to, from, bytes, 8});
}
inline void cp_async_commit() {
  auto& groups = late_copies[threadIdx.x];
  if (groups.empty()) groups.emplace_back();
  groups.emplace_back();
}
template <int kPending>
void cp_async_wait() {
  auto& groups = late_copies[threadIdx.x];
  while (groups.size() > kPending + 1) {  // the last one is open
    for (const LateCopy& copy : groups.front()) {
      std::memset(&shared_memory.at(copy.to), 0, static_cast<size_t>(copy.size));
      std::memcpy(&shared_memory.at(copy.to), copy.from, static_cast<size_t>(copy.bytes));
    }
    groups.pop_front();
  }
}

}  // namespace attune
