// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster: a barrier of all their threads, and reads of each other's shared memory (PTX ISA 9.7.13.4, 9.7.9.22, sm_90).
#pragma once

namespace attune {

// All threads of the cluster meet; what each wrote to shared memory before, all see behind it. By whole warps.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The address that `shared` of this block has in another one.
__device__ __forceinline__ unsigned in_block(unsigned shared, int rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

__device__ __forceinline__ float4 load_cluster_16(unsigned address) {
  float4 values;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values.x), "=f"(values.y), "=f"(values.z), "=f"(values.w)
               : "r"(address)
               : "memory");
  return values;
}

__device__ __forceinline__ float2 load_cluster_8(unsigned address) {
  float2 values;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(values.x), "=f"(values.y)
               : "r"(address)
               : "memory");
  return values;
}

}  // namespace attune
