// SPDX-License-Identifier: Apache-2.0
// The words of CUDA that templates use, so that clang reads templates as plain C++. Editors and the
// test templates_parse include it first (templates/.clangd). Nothing here is ever run.
#pragma once

#define __device__
#define __host__
#define __global__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define ATTUNE_SCORE_FUNCTION __device__ __forceinline__  // as in cuda/parts/score_functions.cuh

struct EditorIndex {
  unsigned x, y, z;
};
extern const EditorIndex threadIdx, blockIdx, blockDim, gridDim;
typedef unsigned long size_t;

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
float2 make_float2(float x, float y);
float4 make_float4(float x, float y, float z, float w);
int2 make_int2(int x, int y);
uint2 make_uint2(unsigned x, unsigned y);
uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w);

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);
void __threadfence();
void __trap();
void __assertfail(const char*, const char*, unsigned, const char*, unsigned long);

template <class Value>
Value __shfl_sync(unsigned mask, Value value, int lane, int width = 32);
template <class Value>
Value __shfl_xor_sync(unsigned mask, Value value, int lanes, int width = 32);
template <class Value>
Value __shfl_up_sync(unsigned mask, Value value, unsigned lanes, int width = 32);
int __all_sync(unsigned mask, int predicate);
int __any_sync(unsigned mask, int predicate);
unsigned __ballot_sync(unsigned mask, int predicate);
template <class Value>
Value __reduce_add_sync(unsigned mask, Value value);
template <class Value>
Value __reduce_max_sync(unsigned mask, Value value);

template <class Value>
Value __ldg(const Value* from);
template <class Value>
Value __ldcg(const Value* from);
template <class Value>
void __stcg(Value* to, Value value);
template <class Value>
Value atomicAdd(Value* to, Value value);
template <class Value>
Value atomicMax(Value* to, Value value);
template <class Value>
Value atomicMin(Value* to, Value value);
template <class Value>
Value atomicExch(Value* to, Value value);
size_t __cvta_generic_to_shared(const void* pointer);

float __int_as_float(int bits);
float __uint_as_float(unsigned bits);
int __float_as_int(float value);
unsigned __float_as_uint(float value);
int __float2int_rz(float value);
float __fdiv_rn(float a, float b);
unsigned __byte_perm(unsigned a, unsigned b, unsigned selector);
unsigned __funnelshift_l(unsigned low, unsigned high, unsigned bits);
unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits);
unsigned __umulhi(unsigned a, unsigned b);
int __vimax3_s32(int a, int b, int c);
int __ffs(int value);
int __clz(int value);
int __popc(unsigned value);
unsigned atomicOr(unsigned* to, unsigned bits);
float sqrtf(float value);

template <class Value>
constexpr Value min(Value a, Value b) {
  return a < b ? a : b;
}
template <class Value>
constexpr Value max(Value a, Value b) {
  return a < b ? b : a;
}
float fmaxf(float a, float b);
float fminf(float a, float b);
float fabsf(float value);
float fmaf(float a, float b, float c);
float expf(float value);
float logf(float value);
float floorf(float value);
float copysignf(float value, float sign);
