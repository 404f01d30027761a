// SPDX-License-Identifier: Apache-2.0
// See served.hpp.
#include "generator/families/served.hpp"

namespace attune {

namespace {

Served with_dropout(Served served) {
  served.features.insert("dropout");
  return served;
}

}  // namespace

const Served& serves_masks() {
  static const Served served{Op::kPrefill, {"mask", "window"}, true};
  return served;
}

const Served& serves_masks_and_dropout() {
  static const Served served = with_dropout(serves_masks());
  return served;
}

const Served& serves_masks_and_accuracy() {
  static const Served served{Op::kPrefill, {"mask", "window", "accuracy"}, true};
  return served;
}

const Served& serves_masks_and_8_bits() {
  static const Served served{
      Op::kPrefill,
      {"mask", "window", "accuracy", "v_layout", "scale_block_q", "scale_block_kv"},
      true};
  return served;
}

const Served& serves_everything() {
  static const Served served = with_dropout(serves_masks_and_8_bits());
  return served;
}

const Served& serves_gradients_and_dropout() {
  static const Served served = with_dropout(serves_gradients());
  return served;
}

const Served& serves_every_gradient() {
  static const Served served = [] {
    Served all = serves_gradients_and_dropout();
    all.features.insert({"score_gradient", "load", "repeats", "accumulate"});
    return all;
  }();
  return served;
}

const Served& serves_sums_of_gradients() {
  static const Served served = [] {
    Served all = serves_gradients_and_dropout();
    all.features.insert("accumulate");
    return all;
  }();
  return served;
}

const Served& serves_score_gradients() {
  static const Served served{
      Op::kAttentionBackward,
      {"mask", "window", "dropout", "score_gradient", "load", "repeats", "deterministic"},
      true};
  return served;
}

const Served& serves_quantising() {
  static const Served served{Op::kQuantise,
                             {"v_layout", "scale_block_q", "scale_block_kv", "rotation"}};
  return served;
}

const Served& serves_merging() {
  static const Served served{Op::kMerge, {}};
  return served;
}

const Served& serves_mapping() {
  static const Served served{Op::kBlockMap, {"mask", "window"}, true};
  return served;
}

const Served& serves_caches() {
  static const Served served{Op::kAttentionKvCache,
                             {"mask", "window", "page_size", "packed_q", "packed_kv",
                              "batch_invariant", "v_in_k", "kv_factors"},
                             true};
  return served;
}

const Served& serves_appending() {
  static const Served served{Op::kAppendKv,
                             {"page_size", "packed_q", "rotary", "rotary_dim", "rotary_interleaved",
                              "rotary_q", "kv_factors"}};
  return served;
}

const Served& serves_gradients() {
  static const Served served{
      Op::kAttentionBackward, {"mask", "window", "gradients", "deterministic"}, true};
  return served;
}

}  // namespace attune
