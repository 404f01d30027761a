// SPDX-License-Identifier: Apache-2.0
// The requests of an attention_kvcache call: lengths and rows from CacheArgs, clamped to the plan's
// limits; the positions of rows, and the keys that rows see.
#pragma once

#include "shared/attention_args.h"
#include "shared/attention_enums.h"
#include "shared/cache_args.h"
#include "shared/layouts/decode_partition.h"

namespace attune {

// One request of the call. A Rule has the members mask, window_left and window_right with which the
// kernel was compiled.
struct DecodeRequest {
  int rows;       // rows of q
  int length;     // keys
  int first_row;  // first row in q, o and lse: 0 unless requests are packed
  int first_key;  // first key in k and v: 0 unless keys are packed

  ATTUNE_HOST_DEVICE constexpr int position(int row) const { return length - rows + row; }
};

ATTUNE_HOST_DEVICE constexpr int clamped(int value, int least, int most) {
  return value < least ? least : value > most ? most : value;
}

// Returns a word of a call's lists. A kernel that starts while the previous kernel still writes the
// lists reads them twice. The reads go through L2, because L1 would return the old word again.
template <bool kThroughL2>
ATTUNE_HOST_DEVICE inline int list_word(const int* word) {
#ifdef __CUDA_ARCH__
  if constexpr (kThroughL2) return __ldcg(word);
#endif
  return *word;
}

template <bool kHasBegins, bool kHasKeyBegins, bool kThroughL2 = false>
ATTUNE_HOST_DEVICE inline DecodeRequest decode_request(const AttentionArgs& args,
                                                       const CacheArgs& cache, int request) {
  DecodeRequest made{args.seqlen_q, args.seqlen_kv, 0, 0};
  if (cache.kv_lengths != nullptr)
    made.length = clamped(list_word<kThroughL2>(cache.kv_lengths + request), 0, args.seqlen_kv);
  if constexpr (kHasKeyBegins) {
    made.first_key = clamped(list_word<kThroughL2>(cache.kv_begins + request), 0, cache.num_pages);
    const int end = clamped(list_word<kThroughL2>(cache.kv_begins + request + 1), made.first_key,
                            cache.num_pages);
    if (end - made.first_key < made.length) made.length = end - made.first_key;
  }
  if (cache.num_pages == 0) made.length = 0;
  if constexpr (kHasBegins) {
    made.first_row = list_word<kThroughL2>(cache.q_begins + request);
    made.rows = clamped(list_word<kThroughL2>(cache.q_begins + request + 1) - made.first_row, 0,
                        args.seqlen_q);
  }
  return made;
}

// Keys that a row sees: [first, last].
struct DecodeKeys {
  int first, last;
};

template <class Rule>
ATTUNE_HOST_DEVICE constexpr DecodeKeys decode_keys(const Rule& rule, const DecodeRequest& request,
                                                    int row) {
  const int position = request.position(row);
  DecodeKeys keys{0, request.length - 1};
  if (rule.window_left >= 0 && position > rule.window_left)
    keys.first = position - static_cast<int>(rule.window_left);
  if (rule.mask != Mask::kNone)
    keys.last = position;
  else if (rule.window_right >= 0 && request.length - 1 - position > rule.window_right)
    keys.last = position + static_cast<int>(rule.window_right);
  return keys;
}

}  // namespace attune
