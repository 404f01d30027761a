// SPDX-License-Identifier: Apache-2.0
// Thread block clusters (sm_90): their barrier, and reads from the shared memory of other blocks
// (PTX ISA 9.7.13.4, 9.7.9.24).
#pragma once

namespace attune {

// Waits until all threads of the cluster that have not exited have arrived. Writes to shared memory
// before it are visible to the cluster's blocks after it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
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
