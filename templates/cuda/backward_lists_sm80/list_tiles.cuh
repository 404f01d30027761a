// SPDX-License-Identifier: Apache-2.0
// The rows and keys of a block of backward_lists_sm80, and their loads into shared memory. A block
// keeps Q and dout of some heads of one row, and K and V of the row's list stream past them.
#pragma once

#include "cuda/backward_lists_sm80/list_workspace.cuh"
#include "cuda/mma/tile_copy.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/key_list_args.h"
#include "shared/layouts/backward_lists_layout.h"

namespace attune {

constexpr int kThreads = 32 * kWarps;
constexpr BackwardListsLayout kLayout =
    backward_lists_layout({kHeads, kKeys, kHeadDimQk, kHeadDimV, kValuesInKeys});
static_assert(kHeads % 16 == 0 && kKeys % 16 == 0, "tiles of products have 16 rows");
static_assert(kKeys <= kThreads && kHeads <= kThreads, "a thread reads at most one entry");

using QkTile = SharedTile<kHeadDimQk>;
using VTile = SharedTile<kHeadDimV>;
using ValueTile = SharedTile<kValuesInKeys ? kHeadDimQk : kHeadDimV>;
using ScoreTile = SharedTile<kKeys>;  // P and dS, by heads and keys

// A row, some of its heads that share a head of K, and its list.
struct ListBlock {
  int batch, row, head_kv;
  int in_round;                 // the row's number in the range of rows
  int tile, first_head, heads;  // of Q
  int length, count;            // entries of the list, and of those that are read
  const int* entries;

  // Grid: rows of all batch entries x heads of K x tiles of heads.
  __device__ __forceinline__ ListBlock(const AttentionArgs& args, const KeyListArgs& lists,
                                       const RowRange& rows) {
    const unsigned line = blockIdx.x / kHeadTiles;
    tile = static_cast<int>(blockIdx.x % kHeadTiles);
    head_kv = static_cast<int>(line % static_cast<unsigned>(args.num_heads_kv));
    in_round = static_cast<int>(line / static_cast<unsigned>(args.num_heads_kv));
    const int number = rows.first + in_round;
    row = number % args.seqlen_q, batch = number / args.seqlen_q;
    first_head = head_kv * kGqaRatio + tile * kHeads;
    heads = min(kHeads, kGqaRatio - tile * kHeads);
    entries = lists.indices + number * lists.row_stride + head_kv * lists.head_stride;
    length = count = lists.length;
    if (lists.counts != nullptr) count = max(0, min(lists.counts[number], length));
  }
};

class ListTiles {
 public:
  __device__ __forceinline__ ListTiles(const AttentionArgs& args, const ListBlock& block,
                                       unsigned shared)
      : args_(args), block_(block), shared_(shared) {}

  __device__ __forceinline__ unsigned q() const { return shared_; }
  __device__ __forceinline__ unsigned dout() const { return shared_ + kLayout.dout; }
  __device__ __forceinline__ unsigned keys() const { return shared_ + kLayout.keys; }
  __device__ __forceinline__ unsigned values() const { return shared_ + kLayout.values; }
  __device__ __forceinline__ unsigned p() const { return shared_ + kLayout.p; }
  __device__ __forceinline__ unsigned ds() const { return shared_ + kLayout.ds; }
  // Return L2 and delta of a head of the block.
  __device__ __forceinline__ float l2(int head) const {
    return __uint_as_float(load_shared_word(shared_ + kLayout.statistics + 4 * head));
  }
  __device__ __forceinline__ float delta(int head) const {
    return __uint_as_float(load_shared_word(shared_ + kLayout.statistics + 4 * (kHeads + head)));
  }
  // Returns key `number` of a step; -1 if there is none.
  __device__ __forceinline__ int key(int step, int number) const {
    return static_cast<int>(load_shared_word(place(step, number)));
  }

  // Begins to load Q and dout, and stores the statistics of their heads. Heads past the last one
  // are zeros with a weight of 0.
  __device__ __forceinline__ void load_rows(const OperandView& dout_of_call) const {
    copy_heads<kHeadDimQk>(args_.q, q());
    copy_heads<kHeadDimV>(dout_of_call, dout());
    const int head = static_cast<int>(threadIdx.x);
    if (head >= kHeads) return;
    float l2 = __int_as_float(0x7f800000), delta = 0.f;
    if (head < block_.heads) {
      const float* const own =
          statistics_of(args_, block_.batch, block_.row, block_.first_head + head);
      l2 = own[0], delta = own[1];
    }
    const unsigned at = shared_ + kLayout.statistics + 4 * head;
    store_shared_word(at, __float_as_int(l2));
    store_shared_word(at + 4 * kHeads, __float_as_int(delta));
  }

  // Reads this thread's entry of a step from the list.
  __device__ __forceinline__ int entry(int step) const {
    const int number = step * kKeys + static_cast<int>(threadIdx.x);
    const bool exists = static_cast<int>(threadIdx.x) < kKeys && number < block_.count;
    const int key = exists ? block_.entries[number] : -1;
    return key < args_.seqlen_kv ? key : -1;
  }
  __device__ __forceinline__ void put(int step, int entry) const {
    if (static_cast<int>(threadIdx.x) < kKeys)
      store_shared_word(place(step, static_cast<int>(threadIdx.x)), entry);
  }
  // Begins to load K and V of a step whose keys all threads have put.
  __device__ __forceinline__ void load_keys(int step) const {
    gather<kHeadDimQk>(args_.k, step, keys());
    if constexpr (!kValuesInKeys) gather<kHeadDimV>(args_.v, step, values());
    cp_async_commit();
  }

 private:
  __device__ __forceinline__ unsigned place(int step, int number) const {
    return shared_ + kLayout.places + 4 * (step % 2 * kKeys + number);
  }

  // Copies a tile whose rows are the heads of one row.
  template <int kHeadDim>
  __device__ __forceinline__ void copy_heads(const OperandView& from, unsigned to) const {
    const long long first = block_.batch * from.batch_stride + block_.row * from.row_stride +
                            block_.first_head * from.head_stride;
    const OperandView heads{static_cast<unsigned short*>(from.data) + first, 0, from.head_stride,
                            0};
    TileCopy<kHeadDim, kHeads, kThreads>(heads, block_.heads)
        .each(0, 0, 0, [&](int, const char* source, unsigned target, int bytes) {
          cp_async_16<128>(to + target, source, bytes);
        });
  }

  template <int kHeadDim>
  __device__ __forceinline__ void gather(const OperandView& from, int step, unsigned to) const {
    using Shared = SharedTile<kHeadDim>;
    constexpr int kThreadsPerRow = 1 << Shared::kSwizzleBits;
    constexpr int kRowsPerPass = kThreads / kThreadsPerRow;
    constexpr int kGlobalChunks = kHeadDim / 8;
    const int first = static_cast<int>(threadIdx.x) / kThreadsPerRow;
    const int column = static_cast<int>(threadIdx.x) % kThreadsPerRow;
    const unsigned short* const base = static_cast<const unsigned short*>(from.data) +
                                       block_.batch * from.batch_stride +
                                       block_.head_kv * from.head_stride + 8 * column;
#pragma unroll
    for (int pass = 0; pass * kRowsPerPass < kKeys; ++pass) {
      const int number = first + pass * kRowsPerPass;
      if (kKeys % kRowsPerPass != 0 && number >= kKeys) continue;
      const int key = this->key(step, number);
      const unsigned short* const source = base + max(key, 0) * from.row_stride;
      const unsigned target = to + Shared::offset(number, column);
#pragma unroll
      for (int chunk = 0; chunk < Shared::kChunks; chunk += kThreadsPerRow)
        cp_async_16<128>(target + 16 * chunk, source + 8 * chunk,
                         key >= 0 && column + chunk < kGlobalChunks ? 16 : 0);
    }
  }

  const AttentionArgs& args_;
  const ListBlock& block_;
  const unsigned shared_;
};

}  // namespace attune
