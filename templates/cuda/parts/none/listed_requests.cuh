// SPDX-License-Identifier: Apache-2.0
// Requests without lists of keys: they are the requests of the line.
#pragma once

#include "cuda/parts/cache_requests.cuh"
#include "cuda/parts/kernel_parts.cuh"

namespace none {

using attune::AttentionArgs, attune::DecodeRequest;
using LineRequests = attune::CacheRequests;

enum AbsentLists { lists };  // the name of a parameter that the kernel lacks

__device__ __forceinline__ int line_rows(const AttentionArgs& args) { return args.seqlen_q; }
__device__ __forceinline__ int line_room(const AttentionArgs& args) { return args.batch; }
template <class Requests>
__device__ __forceinline__ int line_count(const Requests&, const AttentionArgs& args) {
  return args.batch;
}
template <class Lists>
__device__ __forceinline__ LineRequests line_requests(const attune::KernelParts& parts,
                                                      const Lists&) {
  return LineRequests(parts);
}

struct ItemRow {
  template <class Requests>
  __device__ __forceinline__ ItemRow(const Requests&, int) {}
  __device__ __forceinline__ int row_of(int row) const { return row; }
  template <class Requests>
  __device__ __forceinline__ int slot_of(const Requests& requests, int number) const {
    return requests.slot(number);
  }
  __device__ __forceinline__ int keys() const { return 0; }
  __device__ __forceinline__ int list() const { return 0; }
  __device__ __forceinline__ int batch_of(int number) const { return number; }
  __device__ __forceinline__ int position_of(const DecodeRequest& request, int token) const {
    return request.position(token);
  }
  __device__ __forceinline__ const DecodeRequest& whole(const DecodeRequest& request) const {
    return request;
  }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
