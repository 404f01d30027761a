// SPDX-License-Identifier: Apache-2.0
// Converts gathered keys of 8 bits to the type of q. A warp copies the codes of its keys into the
// slot that they will fill, and converts them there, so consumers find what they expect. The chunks
// of a slot that belong to one warp, kKeys rows of each panel, look like this:
//
//   chunk        0       1       2       ...  n - 1
//   codes                          0  1  2  3  ... n - 1   of panel 0, 1, ...; half a chunk each
//   converted    0       1       2       ...  n - 1
//
// Panel i overwrites only codes of panels up to i, which have been read into registers before. Up
// to kDepth slots are being loaded at a time. The work of a part of a step is a function of its
// own, so that all addresses are offsets: warps that convert are short of instructions.
//
// With kLatentRows (shared/latent_rows.h) n counts the panels of V. The factors of these wait in
// the first chunk, and panels of 16 bits are copied in place.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/l2_policy.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/widen_e4m3.cuh"
#include "cuda/sm90/kv_pipeline.cuh"
#include "shared/latent_rows.h"

namespace attune {

constexpr int kColumnsOfV = kHeadDimV * kConsumers;
constexpr int converted_key_bytes() {
  return kLatentRows ? latent_row_bytes(kHeadDimQk, kColumnsOfV) : kHeadDimQk;
}

// A factor of bf16 values, times kWidening, as the sum of two numbers: with one alone, its rounding
// would be the same error in all values.
struct SplitFactor {
  unsigned high, low;  // two equal bf16 numbers each
};
__device__ __forceinline__ SplitFactor split_factor(float factor) {
  const float wide = 0x1p120f * factor;
  const unsigned high = pack<Dtype::kBf16>(wide, wide);
  const float rest = wide - __uint_as_float(high << 16);
  return {high, pack<Dtype::kBf16>(rest, rest)};
}
// Converts the four codes of `word` to bf16, times a factor. Products are rounded once: the small
// part is far below a rounding.
__device__ __forceinline__ void widen_e4m3(unsigned word, SplitFactor factor, unsigned& low,
                                           unsigned& high) {
  spread_e4m3<Dtype::kBf16>(word, low, high);
  low = multiply_add_two(low, factor.high, multiply_two<Dtype::kBf16>(low, factor.low));
  high = multiply_add_two(high, factor.high, multiply_two<Dtype::kBf16>(high, factor.low));
}

template <int kNumber>
struct PartNumber {
  static constexpr int value = kNumber;
};

class ConvertedKeys {
  static constexpr int kPanels = kLayout.panels_qk, kParts = kMlaLayout.slots_of_step;
  static constexpr int kPartPanels = (kPanels + kParts - 1) / kParts;
  static constexpr int kRestAt = latent_rest_at(kColumnsOfV);
  static constexpr int kNarrowPanels = kLatentRows ? kColumnsOfV / kPanelColumns : kPanels;
  static constexpr int kKeys = kBlockN / kGatherWarps;
  static constexpr int kChunk = kKeys * kPanelRowBytes, kPanel = kBlockN * kPanelRowBytes;
  static constexpr int kCodes = kPanelColumns, kLanesOfKey = kCodes / 16;  // of a panel's row
  static constexpr int kKeysAtOnce = 32 / kLanesOfKey, kPasses = kKeys / kKeysAtOnce;
  static constexpr int kPassCodes = kKeysAtOnce * kCodes;
  static_assert(kParts == 1 || kPasses == 1,
                "all codes of a part are read before any is overwritten");
  // With slots of parts, consumers free those of a step together.
  static constexpr int kDepth = kParts > 1 ? kLayout.k_slots - kParts : kLayout.k_slots;
  static_assert(kKeysAtOnce == 8 && kChunk == 2 * kKeys * kCodes, "codes fill half a chunk");
  static_assert(kDepth >= 1, "a slot is loaded while a step is consumed");
  static_assert(!kLatentRows || (kLanesOfKey == 4 && kColumnsOfV == 4 * kLatentFactorColumns),
                "a lane has one factor of a key");

 public:
  // `number`: of this warp among those that gather keys.
  __device__ __forceinline__ ConvertedKeys(unsigned shared, int number, L2Policy policy)
      : shared_(shared), number_(number), policy_(policy) {}

  // Starts to load a step. `row`: the lane's key; `existing`: a bit for each key that exists.
  __device__ __forceinline__ void load(const char* row, unsigned existing) {
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      const int slot = loading_.slot();
      wait_for_room(slot, loading_.parity() ^ 1);
      loading_.advance();
      of_part<0>(part, [&](auto number) { load_part<number.value>(row, existing, slot); });
      cp_async_commit();
      ++pending_;
      if (kKeyLists && lane() == 0) store_existing(slot, existing);
    }
  }
  // Converts all keys that are being loaded.
  __device__ __forceinline__ void finish() {
#pragma unroll 1
    while (pending_ > 0) convert_oldest();
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // Returns how many of the first `all` panels of K a part of a step has.
  static __device__ constexpr int panels_of(int part, int all) {
    const int left = all - part * kPartPanels;
    return left < 0 ? 0 : left < kPartPanels ? left : kPartPanels;
  }
  // Returns the address of this warp's first chunk of a slot.
  __device__ __forceinline__ unsigned chunks_of(int slot) const {
    return shared_ + kLayout.k + slot * kLayout.k_slot_bytes + number_ * kChunk;
  }
  // Returns the offset of the codes of panel `panel`, of `panels`, from the first chunk.
  static __device__ __forceinline__ int codes_at(int panels, int panel) {
    const int half = panels + panel;
    return half / 2 * kPanel + half % 2 * (kChunk / 2);
  }

  // Calls `work` for part number `part`, as a constant.
  template <int kFirst, class Work>
  static __device__ __forceinline__ void of_part(int part, Work work) {
    if constexpr (kFirst + 1 < kParts) {
      if (part != kFirst) return of_part<kFirst + 1>(part, work);
    }
    work(PartNumber<kFirst>());
  }

  // Waits until a slot is free. Until then, or if too many slots are loading, it converts keys.
  __device__ __forceinline__ void wait_for_room(int slot, unsigned parity) {
    const unsigned empty = shared_ + kLayout.k_empty + 8 * slot;
#pragma unroll 1
    while (pending_ == kDepth || (pending_ > 0 && !__any_sync(~0u, mbarrier_test(empty, parity))))
      convert_oldest();
    mbarrier_wait(empty, parity, "slot_empty");
  }

  template <int kPart>
  __device__ __forceinline__ void load_part(const char* row, unsigned existing, int slot) const {
    const unsigned to = chunks_of(slot) + lane() * 16;
    constexpr int kNarrow = panels_of(kPart, kNarrowPanels);
#pragma unroll 1
    for (int first = 0; first < kKeys; first += kKeysAtOnce) {
      const int at = first + lane() / kLanesOfKey;
      const char* const from = reinterpret_cast<const char*>(__shfl_sync(
                                   ~0u, reinterpret_cast<unsigned long long>(row), at)) +
                               lane() % kLanesOfKey * 16;
      const int bytes = (existing >> at & 1u) != 0 ? 16 : 0;
#pragma unroll
      for (int panel = 0; panel < kNarrow; ++panel)
        copy(to + codes_at(kNarrow, panel) + first * kCodes,
             from + (kPart * kPartPanels + panel) * kCodes, bytes);
    }
    if constexpr (kLatentRows) load_rest<kPart>(row, existing, chunks_of(slot));
  }
  // Loads the factors of a part, of which each lane has those of one key, and its panels of 16
  // bits.
  template <int kPart>
  __device__ __forceinline__ void load_rest(const char* row, unsigned existing,
                                            unsigned chunks) const {
    if (lane() < kKeys)
      copy(chunks + lane() * 16, row + kColumnsOfV, (existing >> lane() & 1u) != 0 ? 16 : 0);
    constexpr int kLanes = kPanelRowBytes / 16;
#pragma unroll
    for (int panel = panels_of(kPart, kNarrowPanels); panel < panels_of(kPart, kPanels); ++panel) {
      const char* const of_panel =
          row + kRestAt + (kPart * kPartPanels + panel - kNarrowPanels) * kPanelRowBytes;
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
  // Says which keys of a slot exist (listed_scores.cuh).
  __device__ __forceinline__ void store_existing(int slot, unsigned existing) const {
    store_shared_bits<kKeys>(shared_ + kMlaLayout.listed + 8 * slot + number_ * (kKeys / 8),
                             existing);
  }

  __device__ __forceinline__ void convert_oldest() {
    wait_for_oldest<kDepth - 1>();
    __syncwarp();
    const int slot = converting_.slot();
    const unsigned chunks = chunks_of(slot);
    of_part<0>(part_, [&](auto number) { convert_part<number.value>(chunks); });
    fence_proxy_async();  // wgmma reads them
    __syncwarp();
    mbarrier_arrive_if(lane() == 0, shared_ + kLayout.k_full + 8 * slot);
    converting_.advance();
    part_ = kParts == 1 || part_ + 1 == kParts ? 0 : part_ + 1;
    --pending_;
  }
  // Waits for this lane's copies of the oldest of pending_ slots.
  template <int kOthers>
  __device__ __forceinline__ void wait_for_oldest() const {
    if (kOthers == 0 || pending_ == kOthers + 1)
      cp_async_wait<kOthers>();
    else
      wait_for_oldest<(kOthers > 0 ? kOthers - 1 : 0)>();
  }

  // Finds the factors of rows. A lane has factor lane % 4 of every eighth key.
  __device__ __forceinline__ void find_factors(unsigned chunks, float (&factors)[kPasses]) const {
    if constexpr (!kLatentRows) return;
#pragma unroll
    for (int i = 0; i < kPasses; ++i)
      factors[i] = __uint_as_float(load_shared_word(chunks + i * 128 + lane() * 4));
  }
  // Returns the factor of a panel of a key, of all panels. `factor`: this lane's, of that key.
  static __device__ __forceinline__ SplitFactor factor_of(int panel, float factor) {
    if constexpr (!kLatentRows) return {};
    const int number = panel * kPanelColumns / kLatentFactorColumns;
    return split_factor(__shfl_sync(~0u, factor, lane() / 4 * 4 + number));
  }

  // Converts the panels of a part. Panels of a group overwrite only codes that have been read: all
  // of the part, if registers suffice.
  template <int kPart>
  __device__ __forceinline__ void convert_part(unsigned chunks) const {
    constexpr int kNarrow = panels_of(kPart, kNarrowPanels), kGroup = kParts > 1 ? kNarrow : 1;
    constexpr int kFirst = kPart * kPartPanels;
    constexpr int kAtOnce = kLatentRows ? 1 : kPasses;
    constexpr int kUnrolled = kParts == 1 && kLatentRows && !kKeyLists ? 1 : kNarrow;  // no spills
    float factors[kPasses];
    find_factors(chunks, factors);
    SplitFactor split[kPasses];
#pragma unroll kUnrolled
    for (int first = 0; first < kNarrow; first += kGroup)
#pragma unroll
      for (int of_pass = 0; of_pass < kPasses; of_pass += kAtOnce) {
        if (kGroup == 1 && (!kKeyLists || first == 0 || begins_factor(kFirst + first)))
#pragma unroll
          for (int pass = of_pass; pass < of_pass + kAtOnce; ++pass)
            split[pass] = factor_of(kFirst + first, factors[pass]);
        Vector16 codes[kGroup][kAtOnce];
#pragma unroll
        for (int i = 0; i < kGroup * kAtOnce; ++i)
          codes[i / kAtOnce][i % kAtOnce] = read(chunks + codes_at(kNarrow, first + i / kAtOnce) +
                                                 (of_pass + i % kAtOnce) * kPassCodes);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kGroup * kAtOnce; ++i) {
          const int panel = first + i / kAtOnce, pass = of_pass + i % kAtOnce;
          if (kGroup > 1 && (!kKeyLists || panel == 0 || begins_factor(kFirst + panel))) split[pass] = factor_of(kFirst + panel, factors[pass]);
          store(chunks + panel * kPanel + pass * kKeysAtOnce * kPanelRowBytes,
                codes[i / kAtOnce][i % kAtOnce], split[pass]);
        }
      }
  }
  // True if the factor of this panel is not that of the panel before.
  static __device__ constexpr bool begins_factor(int panel) {
    return panel * kPanelColumns % kLatentFactorColumns == 0;
  }
  static __device__ __forceinline__ Vector16 read(unsigned from) {
    return load_shared_16(from + lane() * 16);
  }
  // Converts 16 codes of a key to two chunks of 16 bytes. `to`: the panel's row of the first key.
  static __device__ __forceinline__ void store(unsigned to, const Vector16& codes,
                                               const SplitFactor& factor) {
    Vector16 wide[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned(&two)[4] = wide[i / 2].word;
      if constexpr (kLatentRows)
        widen_e4m3(codes.word[i], factor, two[i % 2 * 2], two[i % 2 * 2 + 1]);
      else
        widen_e4m3<kDtypeQ>(codes.word[i], kWidening<kDtypeQ>, two[i % 2 * 2], two[i % 2 * 2 + 1]);
    }
    const int row = lane() / kLanesOfKey, chunk = lane() % kLanesOfKey * 2;
    const unsigned at = to + row * kPanelRowBytes + ((chunk ^ row) << 4);
    store_shared_16(at, wide[0]);
    store_shared_16(at ^ 16, wide[1]);
  }

  unsigned shared_;
  int number_;
  L2Policy policy_;
  int pending_ = 0, part_ = 0;  // slots being loaded; the part of a step that the oldest has
  SlotCursor<kLayout.k_slots> loading_, converting_;
};

}  // namespace attune
