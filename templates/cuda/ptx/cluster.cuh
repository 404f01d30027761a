// SPDX-License-Identifier: Apache-2.0
// Thread block clusters (sm_90): their barrier, and reads from the shared memory of other blocks
// (PTX ISA 9.7.13.4, 9.7.9.24).
#pragma once

namespace attune {

// The barrier of all threads of the cluster that have not exited. Writes to shared memory before
// the arrival are visible to the cluster's blocks after the wait.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Returns the address, in the cluster's window, of `shared` in the block of rank `rank`.
__device__ __forceinline__ unsigned cluster_address(unsigned shared, int rank) {
  unsigned address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

// `address` is of cluster_address().
__device__ __forceinline__ float load_cluster_float(unsigned address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

}  // namespace attune
