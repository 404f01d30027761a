// SPDX-License-Identifier: Apache-2.0
// Loads and stores rows of the cache and of q for decode_cpu, as fp32 in whole vectors. Lanes
// beyond the head dim are zero.
#pragma once

#include "cpu/decode/key_lists.hpp"  // where kKeyLists, else none/
#include "cpu/parts/simd.hpp"
#include "shared/key_factors.h"
#include "shared/layouts/decode_layout.h"
#include "shared/layouts/decode_requests.h"

namespace attune {

constexpr bool kNarrow = kDtypeKv != kDtypeQ;  // the cache has 8 or 4 bits
// The bytes of a row of the cache.
template <int kHeadDim>
constexpr int kCacheRowBytes = kHeadDim* static_cast<int>(sizeof(Element<kDtypeKv>)) /
                               (kGroupFactors ? 2 : 1);

constexpr int vectors_of(int head_dim) { return (head_dim + kLanes - 1) / kLanes; }
constexpr int kQkVectors = vectors_of(kHeadDimQk), kOutVectors = vectors_of(kHeadDimV);

template <Dtype kDtype, int kHeadDim>
inline void load_row(const void* data, long long at, Floats* row) {
  const auto* const from = static_cast<const Element<kDtype>*>(data) + at;
  constexpr int kWhole = kHeadDim / kLanes, kRest = kHeadDim % kLanes;
#pragma clang loop unroll(full)
  for (int i = 0; i < kWhole; ++i) row[i] = load<kDtype>(from + i * kLanes);
  if constexpr (kRest > 0) {
    Element<kDtype> rest[kLanes] = {};
    __builtin_memcpy(rest, from + kWhole * kLanes, kRest * sizeof(rest[0]));
    row[kWhole] = load<kDtype>(rest);
  }
}

template <Dtype kDtype, int kHeadDim>
inline void store_row(void* data, long long at, const Floats* row, float factor) {
  auto* const to = static_cast<Element<kDtype>*>(data) + at;
  constexpr int kWhole = kHeadDim / kLanes, kRest = kHeadDim % kLanes;
  for (int i = 0; i < kWhole; ++i) store<kDtype>(to + i * kLanes, row[i] * factor);
  if constexpr (kRest > 0) {
    Element<kDtype> rest[kLanes];
    store<kDtype>(rest, row[kWhole] * factor);
    __builtin_memcpy(to + kWhole * kLanes, rest, kRest * sizeof(rest[0]));
  }
}

inline float sum_of(Floats v) {
#pragma clang fp reassociate(on)  // halves added to halves
  float sum = 0;
#pragma clang loop unroll(full)
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

struct DecodeRule {
  static constexpr Mask mask = kMask;
  static constexpr int window_left = kWindowLeft, window_right = kWindowRight;
};

// An item, like that of cuda/decode_sm80/decode_items.cuh, but with all heads of K.
struct DecodeItem : LineRequest {
  int kv_head, first, rows;

  DecodeItem(const KernelArguments& args, int of_line, int row_tile, int head)
      : LineRequest(args, of_line), kv_head(head), first(row_tile * kDecodeRows) {
    const int left = request.rows * kGqaRatio - first;
    rows = left < kDecodeRows ? left : kDecodeRows;
  }
  int token(int row) const { return (first + row) / kGqaRatio; }
  int head(int row) const { return kv_head * kGqaRatio + (first + row) % kGqaRatio; }
  int position(int row) const { return position_of(token(row)); }
  long long batch() const { return kHasBegins ? 0 : number; }
  long long in(const OperandView& view, int row) const {
    return batch() * view.batch_stride + (request.first_row + token(row)) * view.row_stride +
           head(row) * view.head_stride;
  }
  long long in_lse(const AttentionArgs& args, int row) const {
    return batch() * args.lse_batch_stride + head(row) * args.lse_head_stride + request.first_row +
           token(row);
  }
};

// Finds the places of a request's keys.
class CachedKeys {
 public:
  CachedKeys(const KernelArguments& args, const DecodeItem& item, int)
      : table_(args.cache.page_table +
               (kHasPages ? item.number * args.cache.page_table_stride : 0)),
        num_pages_(args.cache.num_pages),
        first_key_(item.request.first_key) {
    const int* const slots = args.cache.slots;
    if (!kHasPages && !kHasKeyBegins)
      slot_ = inside(slots == nullptr ? item.number : slots[item.number]);
  }
  KeyPlace place(int key) const {
    if (kHasPages) return {inside(table_[key / kPageRows]), key % kPageRows};
    return {slot_, first_key_ + key};
  }
  int key(int number) const { return number; }

 private:
  // Returns 0 for a page that the cache does not have; reading it would leave the cache.
  int inside(int page) const { return page >= 0 && page < num_pages_ ? page : 0; }

  const int* table_;
  int num_pages_, first_key_, slot_ = 0;
};

// The keys of a row, by their numbers on the line.
using LineKeys = KeysOf<CachedKeys>;

// Returns where the row of a key begins, for head 0.
inline long long row_at(const OperandView& view, KeyPlace place) {
  return place.page * view.batch_stride + place.row * view.row_stride;
}

}  // namespace attune
