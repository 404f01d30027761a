// SPDX-License-Identifier: Apache-2.0
// TMA: the bulk tensor copies between global and shared memory (PTX ISA 9.7.9.27, sm_90). Maps are
// 4-D, coordinates {head_dim, row, head, batch}; elements outside the tensor read as zero and are
// not written.
#pragma once

namespace attune {

// The 128-byte descriptor that the host encodes (cuTensorMapEncodeTiled). It is a __grid_constant__
// kernel parameter.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

struct TensorCoord {
  int head_dim;
  int row;
  int head;
  int batch;
};

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies a box from global to shared memory and counts the bytes of the whole box on `barrier`. One
// thread calls it.
__device__ __forceinline__ void tma_load(unsigned shared_address, const TensorMap& map,
                                         unsigned barrier, TensorCoord at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6}], [%2];" ::"r"(shared_address),
      "l"(&map), "r"(barrier), "r"(at.head_dim), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}

// Copies a box from shared to global memory. The copy joins the calling thread's open bulk group.
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned shared_address,
                                          TensorCoord at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(shared_address), "r"(at.head_dim), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the thread's stores have read their shared memory, which may then be overwritten.
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Waits until the thread's stores are complete (shared memory may go away).
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Orders this thread's ordinary shared-memory writes before later reads by TMA and wgmma. A barrier
// must follow.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Adds a box of fp32 values in shared memory to a tensor in global memory (PTX ISA 9.7.9.27.1.3,
// sm_90). Like tma_store(), the copy joins the calling thread's open bulk group.

__device__ __forceinline__ void tma_add(const TensorMap& map, unsigned shared_address,
                                        TensorCoord at) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5}], "
      "[%1];" ::"l"(&map),
      "r"(shared_address), "r"(at.head_dim), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}

}  // namespace attune
