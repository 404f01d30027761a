// SPDX-License-Identifier: Apache-2.0
// What families serve, in the sets that several of them share.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const Served& serves_masks();               // op prefill with every mask, window and score feature
const Served& serves_masks_and_dropout();   // and with dropout
const Served& serves_masks_and_accuracy();  // and with modes of accuracy
const Served& serves_masks_and_8_bits();    // and with all choices that 8-bit operands have
const Served& serves_quantising();          // op quantise with all its choices
const Served& serves_mapping();             // op block_map of all masks
const Served& serves_merging();             // op merge, which has no choices
// Op attention_backward with every mask, window and score feature.
const Served& serves_gradients();
const Served& serves_gradients_and_dropout();
const Served& serves_sums_of_gradients();  // and that are added to others
const Served& serves_score_gradients();    // of it those of biases, slopes and sinks
// All that there is of op prefill, and of op attention_backward: what references and CPU kernels serve, gradients of scores by references alone.
const Served& serves_everything();
const Served& serves_every_gradient();
const Served& serves_appending();  // op append_kv with all its choices
const Served& serves_caches();     // op attention_kvcache with all its choices

}  // namespace attune
