// SPDX-License-Identifier: Apache-2.0
// Converts gathered keys of 8 bits with 64 rows per tile, where shared memory has room for two
// slots of K and no more. A warp copies the codes of its keys into the slot that they will fill,
// and converts them there, so consumers find what they expect. The chunks of a slot that belong to
// one warp, kKeys rows of each panel, look like this:
//
//   chunk        0       1       2       ...  n - 1
//   codes                          0  1  2  3  ... n - 1   of panel 0, 1, ...; half a chunk each
//   converted    0       1       2       ...  n - 1
//
// Panel i overwrites only codes of panels up to i, which have been read into registers before.
// Addresses are constant offsets, because warps that convert are short of instructions.
//
// With kLatentRows (shared/latent_rows.h) n counts the panels of V. The factors of these wait in
// the first chunk, and panels of 16 bits are copied in place.
#pragma once

#include "cuda/mla_sm90/convert_codes.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/l2_policy.cuh"
#include "cuda/sm90/kv_pipeline.cuh"

namespace attune {

class KeysInSlots {
  static constexpr int kPanels = kLayout.panels_qk, kDepth = kLayout.k_slots;
  static constexpr int kRestAt = latent_rest_at(kColumnsOfV);
  static constexpr int kNarrow = kLatentRows ? kColumnsOfV / kPanelColumns : kPanels;
  static constexpr int kKeys = kBlockN / kGatherWarps;
  static constexpr int kChunk = kKeys * kPanelRowBytes, kPanel = kBlockN * kPanelRowBytes;
  static constexpr int kCodes = kPanelColumns, kLanesOfKey = kCodes / 16;  // of a panel's row
  static constexpr int kKeysAtOnce = 32 / kLanesOfKey, kPasses = kKeys / kKeysAtOnce;
  static constexpr int kPassCodes = kKeysAtOnce * kCodes;
  // Passes whose codes are in registers together, and panels whose code is written out. With others
  // a kernel spills.
  static constexpr int kAtOnce = kLatentRows ? 1 : kPasses;
  static constexpr bool kWrittenOut = kKeyLists || !kLatentRows;
  static_assert(kMlaLayout.slots_of_step == 1 && kKeysAtOnce == 8, "a slot has all panels");
  static_assert(!kLatentRows || kColumnsOfV == 4 * kLatentFactorColumns,
                "a lane has one factor of a key");

 public:
  // `number`: of this warp among those that gather keys.
  __device__ __forceinline__ KeysInSlots(unsigned shared, int number, L2Policy policy)
      : shared_(shared), number_(number), policy_(policy) {}

  // Starts to load a step. `row`: the lane's key; `existing`: a bit for each key that exists.
  __device__ __forceinline__ void load(const char* row, unsigned existing) {
    const int slot = loading_.slot();
    wait_for_room(slot, loading_.parity() ^ 1);
    loading_.advance();
    const unsigned chunks = chunks_of(slot);
#pragma unroll 1
    for (int first = 0; first < kKeys; first += kKeysAtOnce) {
      const int at = first + lane() / kLanesOfKey;
      const char* const from = reinterpret_cast<const char*>(__shfl_sync(
                                   ~0u, reinterpret_cast<unsigned long long>(row), at)) +
                               lane() % kLanesOfKey * 16;
      const int bytes = (existing >> at & 1u) != 0 ? 16 : 0;
#pragma unroll
      for (int panel = 0; panel < kNarrow; ++panel)
        copy(chunks + lane() * 16 + codes_at(panel) + first * kCodes, from + panel * kCodes, bytes);
    }
    if constexpr (kLatentRows) load_rest(row, existing, chunks);
    cp_async_commit();
    ++pending_;
    if (kKeyLists && lane() == 0)  // which keys exist (listed_scores.cuh)
      store_shared_bits<kKeys>(shared_ + kMlaLayout.listed + 8 * slot + number_ * (kKeys / 8),
                               existing);
  }
  // Converts all keys that are being loaded.
  __device__ __forceinline__ void finish() {
#pragma unroll 1
    while (pending_ > 0) convert_oldest();
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // Returns the address of this warp's first chunk of a slot.
  __device__ __forceinline__ unsigned chunks_of(int slot) const {
    return shared_ + kLayout.k + slot * kLayout.k_slot_bytes + number_ * kChunk;
  }
  // Returns the offset of the codes of a panel from the first chunk.
  static __device__ __forceinline__ int codes_at(int panel) {
    const int half = kNarrow + panel;
    return half / 2 * kPanel + half % 2 * (kChunk / 2);
  }

  // Waits until a slot is free. Until then, or if too many slots are loading, it converts keys.
  __device__ __forceinline__ void wait_for_room(int slot, unsigned parity) {
    const unsigned empty = shared_ + kLayout.k_empty + 8 * slot;
#pragma unroll 1
    while (pending_ == kDepth || (pending_ > 0 && !__any_sync(~0u, mbarrier_test(empty, parity))))
      convert_oldest();
    mbarrier_wait(empty, parity, "slot_empty");
  }

  // Loads factors, of which each lane has those of one key, and panels of 16 bits.
  __device__ __forceinline__ void load_rest(const char* row, unsigned existing,
                                            unsigned chunks) const {
    if (lane() < kKeys)
      copy(chunks + lane() * 16, row + kColumnsOfV, (existing >> lane() & 1u) != 0 ? 16 : 0);
    constexpr int kLanes = kPanelRowBytes / 16;
#pragma unroll
    for (int panel = kNarrow; panel < kPanels; ++panel) {
      const char* const of_panel = row + kRestAt + (panel - kNarrow) * kPanelRowBytes;
#pragma unroll 1
      for (int first = 0; first < kKeys; first += 32 / kLanes) {
        const int at = first + lane() / kLanes, chunk = lane() % kLanes;
        const auto from =
            __shfl_sync(~0u, reinterpret_cast<unsigned long long>(of_panel), at) + chunk * 16;
        copy(chunks + panel * kPanel + at * kPanelRowBytes + ((chunk ^ at % 8) << 4),
             reinterpret_cast<const char*>(from), (existing >> at & 1u) != 0 ? 16 : 0);
      }
    }
  }
  // Keys of consecutive numbers are read once if one tile has all rows that share a head of K.
  __device__ __forceinline__ void copy(unsigned to, const char* from, int bytes) const {
    if constexpr (kKeyLists)
      cp_async_16<128>(to, from, bytes);
    else
      cp_async_16<128>(to, from, bytes, policy_);
  }

  __device__ __forceinline__ void convert_oldest() {
    if (pending_ == kDepth)
      cp_async_wait<kDepth - 1>();
    else
      cp_async_wait<0>();
    __syncwarp();
    const int slot = converting_.slot();
    convert(chunks_of(slot));
    fence_proxy_async();  // wgmma reads them
    __syncwarp();
    mbarrier_arrive_if(lane() == 0, shared_ + kLayout.k_full + 8 * slot);
    converting_.advance();
    --pending_;
  }
  static_assert(kDepth == 2, "one slot may be loading while another is converted");

  __device__ __forceinline__ void convert(unsigned chunks) const {
    float factors[kPasses];  // of each key four lanes have the factors
#pragma unroll
    for (int i = 0; i < kPasses; ++i)
      factors[i] =
          kLatentRows ? __uint_as_float(load_shared_word(chunks + i * 128 + lane() * 4)) : 0.f;
    SplitFactor split[kPasses];
#pragma unroll(kWrittenOut ? kNarrow : 1)
    for (int panel = 0; panel < kNarrow; ++panel)
#pragma unroll
      for (int of_pass = 0; of_pass < kPasses; of_pass += kAtOnce) {
        if (!kWrittenOut || begins_factor(panel))
#pragma unroll
          for (int pass = of_pass; pass < of_pass + kAtOnce; ++pass)
            split[pass] = factor_of_panel(panel, factors[pass]);
        Vector16 codes[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          codes[i] =
              load_shared_16(chunks + codes_at(panel) + (of_pass + i) * kPassCodes + lane() * 16);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          store_wide(chunks + panel * kPanel + (of_pass + i) * kKeysAtOnce * kPanelRowBytes,
                     widen_codes(codes[i], split[of_pass + i]));
      }
  }

  unsigned shared_;
  int number_;
  L2Policy policy_;
  int pending_ = 0;  // slots being loaded
  SlotCursor<kLayout.k_slots> loading_, converting_;
};
using ConvertedKeys = KeysInSlots;

}  // namespace attune
