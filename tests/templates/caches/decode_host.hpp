// SPDX-License-Identifier: Apache-2.0
// CUDA's functions and PTX for the kernel decode_sm80 on the host, where each thread is a fiber.
// Copies are those of host/cuda/ptx/cp_async.cuh: they happen as late as a wait allows.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/templates/host/block_of_fibers.hpp"
// After the fibers, which define CUDA's words
#include "cuda/ptx/permute_bytes.cuh"
#include "shared/attention_enums.h"
#include "tests/templates/host/cuda/ptx/convert.cuh"
#include "tests/templates/host/cuda/ptx/cp_async.cuh"
#include "tests/templates/host/cuda/ptx/dependent_launch.cuh"
#include "tests/templates/host/cuda/ptx/mma.cuh"

#undef __align__
#define __align__(bytes) alignas(bytes)
#define __trap() std::abort()

namespace attune {

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __fdiv_rn(float a, float b) { return a / b; }
using std::fmaxf;

template <class Word>
Word __ldg(const Word* word) {
  return *word;
}
template <class Word>
Word __ldcg(const Word* word) {
  return *word;
}
template <class Word>
void __stcg(Word* to, Word word) {
  *to = word;
}

template <class Join>
unsigned over_lanes(unsigned own, unsigned first, const Join& join) {
  return BlockOfFibers::exchange({{own}}, [&](const BlockOfFibers::Words* lanes) {
    unsigned all = first;
    for (unsigned lane = 0; lane < 32; ++lane) all = join(all, lanes[lane].word[0], lane);
    return all;
  });
}
inline int __reduce_add_sync(unsigned, int own) {
  return static_cast<int>(
      over_lanes(static_cast<unsigned>(own), 0,
                 [](unsigned all, unsigned one, unsigned) { return all + one; }));
}
inline int __reduce_max_sync(unsigned, int own) {
  return static_cast<int>(
      over_lanes(static_cast<unsigned>(own), 1u << 31, [](unsigned all, unsigned one, unsigned) {
        return static_cast<unsigned>(std::max(static_cast<int>(all), static_cast<int>(one)));
      }));
}
inline unsigned __ballot_sync(unsigned, bool own) {
  return over_lanes(own ? 1 : 0, 0,
                    [](unsigned all, unsigned one, unsigned lane) { return all | one << lane; });
}
inline bool __all_sync(unsigned mask, bool own) { return __ballot_sync(mask, own) == ~0u; }
inline bool __any_sync(unsigned mask, bool own) { return __ballot_sync(mask, own) != 0; }

inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - shared_memory.data());
}
inline void load_shared_pair(unsigned address, float* first, float* second) {
  *first = __uint_as_float(load_shared_word(address));
  *second = __uint_as_float(load_shared_word(address + 4));
}
inline unsigned pack_finite_fp16(float low, float high) { return pack<Dtype::kFp16>(low, high); }
// For the names alone: caches of 8 bits do not run here.
inline void int8_to_fp16(unsigned, unsigned&, unsigned&) {}
template <Dtype>
void fp8_to_fp16(unsigned, unsigned&, unsigned&) {}
inline void named_barrier_sync(int id, int threads) {
  BlockOfFibers::meet_at(id, static_cast<unsigned>(threads));
}
inline float exp2_approx(float x) { return std::exp2(x); }
inline float log2_approx(float x) { return std::log2(x); }
inline float reciprocal_approx(float x) { return 1 / x; }

// Word i of matrix m: elements 2 i and 2 i + 1 of the row that lane 8 m + row gives; transposed,
// the elements of two rows.
template <bool kTransposed>
void load_matrices(unsigned (&r)[4], unsigned address) {
  const unsigned lane = threadIdx.x % 32;
  BlockOfFibers::exchange({{address}}, [&](const BlockOfFibers::Words* lanes) {
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      r[matrix] = 0;
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned across = 2 * (lane % 4) + i, along = lane / 4;
        const unsigned row = kTransposed ? across : along, column = kTransposed ? along : across;
        unsigned short element;
        std::memcpy(&element, &shared_memory.at(lanes[8 * matrix + row].word[0] + 2 * column), 2);
        r[matrix] |= static_cast<unsigned>(element) << 16 * i;
      }
    }
    return 0;
  });
}
inline void ldmatrix_x4(unsigned (&r)[4], unsigned address) { load_matrices<false>(r, address); }
inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) {
  load_matrices<true>(r, address);
}

// Word i of a row of eight elements becomes elements of two rows.
inline unsigned movmatrix_transposed(unsigned word) {
  const unsigned lane = threadIdx.x % 32;
  return BlockOfFibers::exchange({{word}}, [&](const BlockOfFibers::Words* lanes) {
    const auto element = [&](unsigned row) {
      return lanes[4 * row + lane / 8].word[0] >> lane / 4 % 2 * 16 & 0xFFFFU;
    };
    return element(2 * (lane % 4)) | element(2 * (lane % 4) + 1) << 16;
  });
}

using L2Policy = int;
inline L2Policy evict_first_policy() { return 0; }
inline L2Policy evict_normal_policy() { return 0; }
template <int kPrefetched>
void cp_async_16(unsigned to, const void* from, int bytes, L2Policy) {
  cp_async_16<kPrefetched>(to, from, bytes);
}

inline bool takes_last_ticket(unsigned* counter, int count) {
  const bool is_last = *counter + 1 == static_cast<unsigned>(count);
  *counter = is_last ? 0 : *counter + 1;
  return is_last;
}

constexpr unsigned kMinusZero = 1u << 31;
inline unsigned nonzero_bits(float value) {
  return __float_as_uint(value) == 0 ? kMinusZero : __float_as_uint(value);
}
inline bool is_written(float value) { return __float_as_uint(value) != 0; }
inline bool is_written(const float2& value) { return is_written(value.x) && is_written(value.y); }
inline bool is_written(const float4& value) {
  return is_written(value.x) && is_written(value.y) && is_written(value.z) && is_written(value.w);
}
template <class Words>
void clear_words(Words* to) {
  *to = {};
}
inline void store_valid(float2* to, float2 value) {
  *to = {__uint_as_float(nonzero_bits(value.x)), __uint_as_float(nonzero_bits(value.y))};
}
template <class Words>
Words load_words(const Words* from) {
  return *from;
}
template <class Look>
void look_until(const Look& look) {
  if (!look()) std::abort();  // blocks run in order: all that a block waits for has been written
}

// Bulk copies and TMA, for the names alone: kernels that run here load by cp.async.
struct TensorMap {};
struct TensorCoord {
  int head_dim, row, head, batch;
};
inline void fence_proxy_async() {}
inline void fence_mbarrier_init() {}
inline void prefetch_tensor_map(const TensorMap&) {}
template <class... Rest>
void tma_load(Rest&&...) {}
template <class... Rest>
void tma_prefetch(Rest&&...) {}
template <class... Rest>
void bulk_load(Rest&&...) {}
template <class... Rest>
void bulk_prefetch(Rest&&...) {}
template <class... Rest>
void mbarrier_init(Rest&&...) {}
template <class... Rest>
void mbarrier_wait(Rest&&...) {}
template <class... Rest>
void mbarrier_arrive_if(Rest&&...) {}
template <class... Rest>
void mbarrier_arrive_expect_tx(Rest&&...) {}
template <class... Rest>
void cp_async_arrive(Rest&&...) {}

}  // namespace attune
