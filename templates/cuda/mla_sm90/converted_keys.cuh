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
// to kDepth slots are being loaded at a time.
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
  static constexpr bool kReadsAhead = kParts > 1 || !kLatentRows;
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
#pragma unroll
    for (int part = 0; part < kParts; ++part) load_part(row, existing, part);
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

  __device__ __forceinline__ void load_part(const char* row, unsigned existing, int part) {
    const int slot = loading_.slot();
    const unsigned empty = shared_ + kLayout.k_empty + 8 * slot, parity = loading_.parity() ^ 1;
    loading_.advance();
#pragma unroll 1
    while (pending_ == kDepth || (pending_ > 0 && !__any_sync(~0u, mbarrier_test(empty, parity))))
      convert_oldest();
    mbarrier_wait(empty, parity, "slot_empty");
    const unsigned to = chunks_of(slot) + lane() * 16;
    const int panels = panels_of(part, kNarrowPanels);
#pragma unroll 1
    for (int first = 0; first < kKeys; first += kKeysAtOnce) {
      const int at = first + lane() / kLanesOfKey;
      const char* const from = reinterpret_cast<const char*>(__shfl_sync(
                                   ~0u, reinterpret_cast<unsigned long long>(row), at)) +
                               part * kPartPanels * kCodes + lane() % kLanesOfKey * 16;
      const int bytes = (existing >> at & 1u) != 0 ? 16 : 0;
#pragma unroll
      for (int panel = 0; panel < panels; ++panel)
        copy(to + codes_at(panels, panel) + first * kCodes, from + panel * kCodes, bytes);
    }
    if constexpr (kLatentRows) load_rest(row, existing, part, chunks_of(slot));
    cp_async_commit();
    ++pending_;
    if (kKeyLists && lane() == 0) store_existing(slot, existing);
  }
  // Loads the factors of a part, of which each lane has those of one key, and its panels of 16
  // bits.
  __device__ __forceinline__ void load_rest(const char* row, unsigned existing, int part,
                                            unsigned chunks) const {
    if (lane() < kKeys)
      copy(chunks + lane() * 16, row + kColumnsOfV, (existing >> lane() & 1u) != 0 ? 16 : 0);
    constexpr int kLanes = kPanelRowBytes / 16;
    const int narrow = panels_of(part, kNarrowPanels), panels = panels_of(part, kPanels);
#pragma unroll
    for (int panel = narrow; panel < panels; ++panel) {
      const char* const of_panel = row + kRestAt + (part * kPartPanels + panel - kNarrowPanels) * kPanelRowBytes;
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
    const int slot = converting_.slot(), panels = panels_of(part_, kNarrowPanels);
    float factors[kPasses];
    find_factors(chunks_of(slot), factors);
    convert(chunks_of(slot), panels, factors);
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
  // Returns the factor of a panel of a key. `factor`: this lane's, of that key.
  __device__ __forceinline__ SplitFactor factor_of(int panel, float factor) const {
    if constexpr (!kLatentRows) return {};
    const int number = (part_ * kPartPanels + panel) * kPanelColumns / kLatentFactorColumns;
    return split_factor(__shfl_sync(~0u, factor, lane() / 4 * 4 + number));
  }

  // Converts panels in passes. A pass overwrites only codes that it or a pass before has read. Its
  // codes are read one pass ahead, if registers suffice.
  __device__ __forceinline__ void convert(unsigned chunks, int panels,
                                          const float (&factors)[kPasses]) const {
    Vector16 codes;
    if constexpr (kReadsAhead) codes = read(chunks + codes_at(panels, 0));
#pragma unroll 1
    for (int panel = 0; panel < panels; ++panel) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const SplitFactor factor = factor_of(panel, factors[pass]);
        if constexpr (!kReadsAhead)
          codes = read(chunks + codes_at(panels, panel) + pass * kPassCodes);
        Vector16 next = codes;
        if (kReadsAhead && pass + 1 < kPasses)
          next = read(chunks + codes_at(panels, panel) + (pass + 1) * kPassCodes);
        else if (kReadsAhead && panel + 1 < panels)
          next = read(chunks + codes_at(panels, panel + 1));
        __syncwarp();
        store(chunks + panel * kPanel + pass * kKeysAtOnce * kPanelRowBytes, codes,
              factor);
        codes = next;
      }
    }
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
