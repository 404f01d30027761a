// SPDX-License-Identifier: Apache-2.0
// Attention over lists of keys on a GPU (shared/key_lists.h): each row of q is a request of the
// line of decode_partition.h, whose keys are the entries of its list.
#pragma once

#include "cuda/parts/cache_requests.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/cache_features.cuh"
#include "shared/key_lists.h"

namespace attune {

// Returns the most rows of a request of the line.
__device__ __forceinline__ int line_rows(const AttentionArgs&) { return 1; }
// Returns the most requests that the line may have.
__device__ __forceinline__ int line_room(const AttentionArgs& args) {
  return args.batch * args.seqlen_q;
}

// The rows of q as requests of the line: CacheRequests for them.
class LineRequests {
 public:
  __device__ __forceinline__ LineRequests(const KernelParts& parts, const KeyListArgs& lists)
      : parts_(parts), lists_(lists) {
    load(0);
  }

  // The flag is that of CacheRequests. The kernel reads no list before the previous grid has ended.
  template <bool = false>
  __device__ __forceinline__ void load(int first) {
    first_ = first;
    count_ = num_listed_rows<kHasBegins>(parts_.base, parts_.cache);
    own_ = has_own() ? row(first_ + static_cast<int>(threadIdx.x) % 32).alone() : DecodeRequest{};
  }
  __device__ __forceinline__ bool still_are() const { return true; }
  __device__ __forceinline__ DecodeRequest operator[](int number) {
    if ((number ^ first_) >= 32) load(number / 32 * 32);
    const int lane = number % 32;
    return {__shfl_sync(~0u, own_.rows, lane), __shfl_sync(~0u, own_.length, lane),
            __shfl_sync(~0u, own_.first_row, lane), __shfl_sync(~0u, own_.first_key, lane)};
  }
  __device__ __forceinline__ bool has_own() const {
    return first_ + static_cast<int>(threadIdx.x) % 32 < count_;
  }
  __device__ __forceinline__ const DecodeRequest& own() const { return own_; }
  __device__ __forceinline__ int count() const { return count_; }
  // Returns the cache slot of a request of the call.
  __device__ __forceinline__ int slot(int request) const {
    return parts_.cache.slots == nullptr ? request : parts_.cache.slots[request];
  }
  __device__ __forceinline__ ListedRow row(int number) const {
    return listed_row<kHasBegins, kHasKeyBegins>(parts_.base, parts_.cache, lists_, number);
  }

 private:
  const KernelParts& parts_;
  const KeyListArgs& lists_;
  int first_, count_;
  DecodeRequest own_;
};
__device__ __forceinline__ int line_count(const LineRequests& requests, const AttentionArgs&) {
  return requests.count();
}
__device__ __forceinline__ LineRequests line_requests(const KernelParts& parts,
                                                      const KeyListArgs& lists) {
  return LineRequests(parts, lists);
}

// The row of q that an item of the line is.
struct ItemRow {
  ListedRow listed;

  __device__ __forceinline__ ItemRow(const LineRequests& requests, int number)
      : listed(requests.row(number)) {}
  // Returns the row of its request; `row` is that of the line.
  __device__ __forceinline__ int row_of(int) const { return listed.row; }
  __device__ __forceinline__ int slot_of(const LineRequests& requests, int) const {
    return kHasPages || kHasKeyBegins || kArePlaces ? 0 : requests.slot(listed.request);
  }
  __device__ __forceinline__ int keys() const { return listed.whole.length; }
  __device__ __forceinline__ int list() const { return listed.list; }
  __device__ __forceinline__ int batch_of(int) const { return listed.request; }
  __device__ __forceinline__ int position_of(const DecodeRequest&, int) const {
    return listed.position();
  }
  __device__ __forceinline__ const DecodeRequest& whole(const DecodeRequest&) const {
    return listed.whole;
  }
};

}  // namespace attune
