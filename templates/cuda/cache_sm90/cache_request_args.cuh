// SPDX-License-Identifier: Apache-2.0
// The arguments of a call over caches, as they apply to the rows and keys of one request.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "shared/layouts/decode_requests.h"

namespace attune {

constexpr int kWordsOfO = kDtypeO == Dtype::kFp32 ? 2 : 1;  // of 16 bits, in an element

// AttentionArgs with the lengths of one request and the addresses at which its rows begin.
class RequestArgs {
 public:
  __device__ __forceinline__ explicit RequestArgs(const KernelParts& parts)
      : all_(parts.base), args_(parts.base) {
    if constexpr (kHasBegins)
      args_.q.batch_stride = args_.o.batch_stride = args_.lse_batch_stride = 0;
  }

  __device__ __forceinline__ const AttentionArgs& args() const { return args_; }
  __device__ __forceinline__ void move_to(const DecodeRequest& request) {
    args_.seqlen_q = request.rows;
    args_.seqlen_kv = request.length;
    if constexpr (kHasBegins) {
      args_.q.data = moved<1>(all_.q, request.first_row);
      args_.o.data = moved<kWordsOfO>(all_.o, request.first_row);
      args_.lse = all_.lse == nullptr ? nullptr : all_.lse + request.first_row;
    }
  }

 private:
  // kWords: words of 16 bits in an element.
  template <int kWords>
  static __device__ __forceinline__ void* moved(const OperandView& view, int rows) {
    return static_cast<unsigned short*>(view.data) + rows * view.row_stride * kWords;
  }

  const AttentionArgs& all_;
  AttentionArgs args_;
};

}  // namespace attune
