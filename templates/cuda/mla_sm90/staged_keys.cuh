// SPDX-License-Identifier: Apache-2.0
// Converts gathered keys of 8 bits with fewer than 64 rows per tile. A warp has kKeys keys of each
// step. Bulk copies bring their rows to a stage of the warp's own, two steps ahead. The warp
// converts them from there into slots of K, part by part, so consumers find what they expect.
//
// With kLatentRows (shared/latent_rows.h) rows have factors, and panels of 16 bits, which are
// copied.
#pragma once

#include "cuda/mla_sm90/convert_codes.cuh"
#include "cuda/ptx/bulk_copies.cuh"
#include "cuda/ptx/l2_policy.cuh"
#include "cuda/sm90/kv_pipeline.cuh"

namespace attune {

class StagedKeys {
  static constexpr int kPanels = kLayout.panels_qk, kParts = kMlaLayout.slots_of_step;
  static constexpr int kNarrow = kLatentRows ? kColumnsOfV / kPanelColumns : kPanels;
  static constexpr int kKeys = kMlaKeys / kMlaConverters;
  static constexpr int kPanel = kBlockN * kPanelRowBytes;
  static constexpr int kStageBytes = kKeys * kCodeBytes;
  static constexpr unsigned kAllKeys = (1u << kKeys) - 1;
  static_assert(kKeys == 8 && kCodeBytes % 16 == 0, "four lanes convert 64 columns of a key");
  static_assert(kRows == kWarpgroupRows || kGatherWarps == kMlaConverters, "keys of all warps");
  static_assert(!kLatentRows || kColumnsOfV == 4 * kLatentFactorColumns,
                "a lane has one factor of a key");

 public:
  // `number`: of this warp among those that gather keys.
  __device__ __forceinline__ StagedKeys(unsigned shared, int number, L2Policy)
      : shared_(shared), number_(number) {}

  // Starts to load a step. `row`: the lane's key; `existing`: a bit for each key that exists. Keys
  // that do not exist become zeros.
  __device__ __forceinline__ void load(const char* row, unsigned existing) {
    if (pending_ == kMlaStages) convert_oldest();
    const unsigned mine = existing & kAllKeys;
    const unsigned full = full_of(loading_.slot());
    if (lane() == 0) mbarrier_arrive_expect_tx(full, __popc(mine) * kCodeBytes);
    __syncwarp();
    const unsigned to = stage_of(loading_.slot()) + lane() * kCodeBytes;
    if (mine == kAllKeys && are_neighbours(row)) {  // then one copy suffices
      if (lane() == 0) bulk_load(to, row, kStageBytes, full);
    } else if ((mine >> lane() & 1u) != 0) {
      bulk_load(to, row, kCodeBytes, full);
    } else if (lane() < kKeys) {
#pragma unroll 1
      for (int at = 0; at < kCodeBytes; at += 16) store_shared_16(to + at, {{0, 0, 0, 0}});
    }
    existing_ |= mine << kKeys * pending_;
    loading_.advance();
    ++pending_;
  }
  // Converts all keys that are being loaded.
  __device__ __forceinline__ void finish() {
#pragma unroll 1
    while (pending_ > 0) convert_oldest();
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ unsigned stage_of(int stage) const {
    return shared_ + kMlaLayout.stages + (stage * kGatherWarps + number_) * kStageBytes;
  }
  __device__ __forceinline__ unsigned full_of(int stage) const {
    return shared_ + kMlaLayout.stages_full + 8 * (stage * kGatherWarps + number_);
  }

  // True if the rows of this warp's keys follow each other.
  static __device__ __forceinline__ bool are_neighbours(const char* row) {
    const auto address = reinterpret_cast<unsigned long long>(row);
    const auto first = __shfl_sync(~0u, address, 0);
    return __all_sync(~0u, address == first + lane() % kKeys * kCodeBytes);
  }

  // The converted panels of a slot.
  using Panels = WideCodes[kMlaSlotPanels];

  // Converts a step, part by part. A part is converted while the fence of the part before it is
  // pending.
  __device__ __forceinline__ void convert_oldest() {
    mbarrier_wait(full_of(converting_.slot()), converting_.parity(), "stage_full");
    __syncwarp();  // zeros are visible
    const unsigned stage = stage_of(converting_.slot());
    const unsigned key = stage + lane() / 4 * kCodeBytes, codes = key + lane() % 4 * 16;
    float factor = 0.f;
    if constexpr (kLatentRows)
      factor = __uint_as_float(load_shared_word(key + kColumnsOfV + lane() % 4 * 4));
    Panels wide;
    bool is_free = is_slot_free();
    widen(0, codes, factor, wide);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int slot = slots_.slot();
      if (!is_free)
        mbarrier_wait(shared_ + kLayout.k_empty + 8 * slot, slots_.parity() ^ 1, "slot_empty");
      store(part, slot, stage, wide);
      slots_.advance();
      fence_proxy_async();  // wgmma reads them
      if (part + 1 < kParts) {
        is_free = is_slot_free();
        widen(part + 1, codes, factor, wide);
      }
      __syncwarp();
      mbarrier_arrive_if(lane() == 0, shared_ + kLayout.k_full + 8 * slot);
    }
    existing_ >>= kKeys;
    converting_.advance();
    --pending_;
  }

  // True if the next slot is known to be free.
  __device__ __forceinline__ bool is_slot_free() const {
    return mbarrier_test(shared_ + kLayout.k_empty + 8 * slots_.slot(), slots_.parity() ^ 1);
  }
  // Converts the panels of a part that are codes. `codes`: of this lane, in the first panel.
  static __device__ __forceinline__ void widen(int part, unsigned codes, float factor,
                                               Panels& wide) {
    SplitFactor split;
#pragma unroll
    for (int i = 0; i < kMlaSlotPanels; ++i) {
      const int panel = part * kMlaSlotPanels + i;
      if (panel >= kNarrow) continue;
      if (i == 0 || begins_factor(panel)) split = factor_of_panel(panel, factor);
      wide[i] = widen_codes(load_shared_16(codes + panel * kPanelColumns), split);
    }
  }
  __device__ __forceinline__ void store(int part, int slot, unsigned stage,
                                        const Panels& wide) const {
    const unsigned to = shared_ + kLayout.k + slot * kLayout.k_slot_bytes + number_ * kRowsBytes;
#pragma unroll
    for (int i = 0; i < kMlaSlotPanels; ++i) {
      const int panel = part * kMlaSlotPanels + i;
      if (panel < kNarrow)
        store_wide(to + i * kPanel, wide[i]);
      else if (panel < kPanels)
        copy_panel(to + i * kPanel, stage + kRestAt + (panel - kNarrow) * kPanelRowBytes);
    }
    if (kKeyLists && lane() == 0)  // which keys exist (listed_scores.cuh)
      store_shared_bits<kKeys>(shared_ + kMlaLayout.listed + 8 * slot + number_ * (kKeys / 8),
                               existing_);
  }
  // Copies 64 columns of 16 bits of each key. Eight lanes copy a row.
  __device__ __forceinline__ void copy_panel(unsigned to, unsigned from) const {
#pragma unroll
    for (int at = lane() / 8; at < kKeys; at += 4) {
      const int chunk = lane() % 8;
      store_shared_16(to + at * kPanelRowBytes + ((chunk ^ at) << 4),
                      load_shared_16(from + at * kCodeBytes + chunk * 16));
    }
  }
  static constexpr int kRestAt = latent_rest_at(kColumnsOfV);
  static constexpr int kRowsBytes = kKeys * kPanelRowBytes;

  unsigned shared_;
  int number_;
  int pending_ = 0;        // stages being loaded
  unsigned existing_ = 0;  // their keys that exist; the oldest has the lowest bits
  SlotCursor<kMlaStages> loading_, converting_;
  SlotCursor<kLayout.k_slots> slots_;
};

}  // namespace attune

namespace none {
using ConvertedKeys = attune::StagedKeys;  // a kernel with 64 rows per tile has KeysInSlots
}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
