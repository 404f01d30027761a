// SPDX-License-Identifier: Apache-2.0
// The order in which decode_cpu reads a cache: blocks of keys, and steps of a few keys of one head.
// Either the keys of a step are adjacent, or they are far apart (kFarApart). If they are adjacent,
// later rows are prefetched explicitly. A CPU's own prefetchers stop at the end of a memory page,
// which may be one row of all heads.
#pragma once

#include "cpu/decode/decode_products.hpp"
#include "cpu/decode/key_factors.hpp"  // where kKeyFactors, else none/
#include "cpu/decode/latent_rows.hpp"
#include "cpu/decode/nibble_rows.hpp"  // where kGroupFactors, else none/
#include "shared/kernel_arguments.h"

namespace attune {

// Heads of K that have the same keys.
struct HeadRange {
  int first, count;
};

// Keys that are processed together, for a range of heads. Each key has a place, the index of its
// scores.
struct KeyBlock {
  HeadRange heads;
  int first, count;
  int places;                        // whole vectors and steps
  long long k[kBlock], v[kBlock];    // where their rows begin, for the first head
  int keys[kKeyLists ? kBlock : 1];  // the listed keys; -1: the entry names none
  [[no_unique_address]] KeyFactors factors;
  [[no_unique_address]] GroupPlaces groups;

  // Returns the key at a place. If the place has no key, the result is at least `count`.
  int key_at(int place) const {
    return kFarApart ? place % kStepKeys * (places / kStepKeys) + place / kStepKeys : place;
  }

  // True if the place has a key.
  bool has(int place) const { return kKeyLists ? keys[place] >= 0 : key_at(place) < count; }
  // Returns the number of the key at a place, for score programs; that of any key if there is none.
  int key_of(int place) const {
    if (kKeyLists) return has(place) ? keys[place] : 0;
    const int at = key_at(place);
    return first + (at < count ? at : 0);
  }

  KeyBlock(const KernelArguments& args, HeadRange of, const LineKeys& cached, int begin, int end)
      : heads(of),
        first(begin),
        count(end - begin < kBlock ? end - begin : kBlock),
        places((count + kMostStepKeys - 1) / kMostStepKeys * kMostStepKeys) {
    for (int place = 0; place < places; ++place) {
      const int key = key_at(place);
      if (kKeyLists) keys[place] = -1;
      if (key >= count) continue;
      KeyPlace at = cached.place(first + key);
      if (kKeyLists && at.row < 0) {
        at = {0, 0};  // prefetched, not read
      } else if (kKeyLists) {
        keys[place] = cached.key(first + key);
      }
      k[place] = row_at(args.k, at) + heads.first * args.k.head_stride;
      v[place] = row_at(args.v, at) + heads.first * args.v.head_stride;
      factors.find(args, at, place);
      groups.find(args, at, place, heads.first);
    }
  }
};

// The rows of a step in the form that products read. A key past the last one has a row of zeros.
template <int kHeadDim, int kStep>
struct StepRows {
  static constexpr KvElement kZeros[vectors_of(kHeadDim) * kLanes] = {};
  const KvElement* rows[kStep];
  Floats wide[kNarrow ? kStep * vectors_of(kHeadDim) : 1];  // narrow rows as fp32
};

// Reads K or V of a block in the order in which its rows lie in memory.
template <int kHeadDim, int kStep>
class BlockReader {
 public:
  BlockReader(const OperandView& view, const KeyBlock& block, const long long* at,
              const GroupRows& groups, int heads)
      : data_(static_cast<const Element<kDtypeKv>*>(view.data)),
        head_stride_(view.head_stride),
        block_(block),
        at_(at),
        groups_(groups),
        steps_(block.places / kStep),
        heads_(heads),
        by_head_(view.head_stride > view.row_stride) {}

  // Calls take(rows, first place of the step, head) for all steps. Each step prefetches a later
  // step. At the end, where no later step exists, it calls then(0), then(1), ... instead.
  template <class Take, class Then>
  void each_step(const Take& take, const Then& then) const {
    const int count = steps_ * heads_, ahead = by_head_ ? kStepsAhead : heads_;
    for (int i = 0; i < count; ++i) {
      if (i + ahead < count) {
        fetch(i + ahead);
      } else {
        then(i + ahead - count);
      }
      StepRows<kHeadDim, kStep> step;
      find(i, &step);
      take(step.rows, first_place(i), head(i));
    }
  }

  // Prefetches as many bytes as step `i` reads, if there is such a step, in the order of memory.
  // Does nothing if keys are far apart.
  void fetch(int i) const {
    constexpr int kBytes = kCacheRowBytes<kHeadDim>, kLine = 64;
    if (kFarApart || i >= steps_ * heads_) return;
    int place = first_place(i), of = head(i);
    if (!by_head_) {  // the rows of all heads of a step are adjacent
      place += of * kStep / heads_;
      of = of * kStep % heads_;
    }
    for (int row = 0; row < kStep && place < block_.count; ++row) {
      const auto* const from = reinterpret_cast<const char*>(row_of(place, of));
      for (int byte = 0; byte < kBytes; byte += kLine)
        __builtin_prefetch(from + byte, 0, 2);  // into L2: L1 tracks few missing lines
      if (by_head_) {
        ++place;
      } else if (++of == heads_) {
        ++place;
        of = 0;
      }
    }
  }

 private:
  static constexpr int kStepsAhead = 2;  // if by_head_

  int first_place(int i) const { return (by_head_ ? i % steps_ : i / heads_) * kStep; }
  int head(int i) const { return by_head_ ? i / steps_ : i % heads_; }

  const Element<kDtypeKv>* row_of(int place, int head) const {
    return data_ + at_[place] + head * head_stride_;
  }

  void find(int i, StepRows<kHeadDim, kStep>* step) const {
    const int first = first_place(i), of = head(i);
    for (int key = 0; key < kStep; ++key) {
      if (!block_.has(first + key)) {
        step->rows[key] = StepRows<kHeadDim, kStep>::kZeros;
        continue;
      }
      const Element<kDtypeKv>* const from = row_of(first + key, of);
      if constexpr (kNarrow) {
        Floats* const to = step->wide + key * vectors_of(kHeadDim);
        if constexpr (kLatentRows)
          load_latent_row<kHeadDim>(from, to);
        else if constexpr (kGroupFactors)
          load_nibble_row<kHeadDim>(from, groups_, first + key, of, to);
        else
          load_row<kDtypeKv, kHeadDim>(from, 0, to);
        step->rows[key] = reinterpret_cast<const KvElement*>(to);
      } else {
        step->rows[key] = reinterpret_cast<const KvElement*>(from);  // the same type
      }
    }
  }

  const Element<kDtypeKv>* data_;
  long long head_stride_;
  const KeyBlock& block_;
  const long long* at_;
  [[no_unique_address]] const GroupRows groups_;
  int steps_, heads_;
  bool by_head_;  // rows of a head are adjacent
};

}  // namespace attune
