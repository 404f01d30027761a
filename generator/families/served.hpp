// SPDX-License-Identifier: Apache-2.0
// The sets of problems that several families serve, and the limits that several share.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const Served& serves_masks();               // op prefill with every mask, window and score feature
const Served& serves_masks_and_dropout();   // and with dropout and the largest logits
const Served& serves_masks_and_accuracy();  // and with modes of accuracy
const Served& serves_masks_and_8_bits();    // and with all choices of 8-bit operands
const Served& serves_quantising();          // op quantise with all its choices
const Served& serves_mapping();             // op block_map, with all masks
const Served& serves_merging();             // op merge, which has no choices
const Served& serves_choosing();            // op top_k, with all masks
const Served& serves_indexing();            // op index_scores, with all masks
// Op attention_backward with every mask, window and score feature.
const Served& serves_gradients();
const Served& serves_gradients_and_dropout();
const Served& serves_sums_of_gradients();     // and with sums added to others
const Served& serves_gradients_over_lists();  // op attention_backward over lists of keys
const Served& serves_score_gradients();       // op attention_backward, score gradients
// Everything in op prefill and in op attention_backward. References and CPU kernels serve it; only
// references serve gradients of scores.
const Served& serves_everything();
const Served& serves_every_gradient();
const Served& serves_appending();  // op append_kv with all its choices
std::vector<ArgumentPart> append_parts(const KernelSpec& spec);  // of kernels of append_kv
// Op attention_kvcache with all its choices, without or with lists of keys.
const Served& serves_caches();
const Served& serves_lists();

// Returns the reason for which a template of one target refuses an arch of the other; else nullopt.
std::optional<std::string> other_target(const Arch& arch, Target target);
// True if kernels can copy from global to shared memory in the background (cp.async).
inline bool copies_ahead(const Arch& arch) { return arch.compute_capability >= 80; }
// The widest window of CPU kernels, longer than any call.
constexpr int64_t kWidestWindow = int64_t{1} << 30;
// Returns the reason for which CPU kernels refuse an arch, types, head dims or windows; else
// nullopt.
std::optional<std::string> cpu_refusal(const KernelSpec& spec, const Arch& arch);
// Returns the reason for which the gradient kernels of sm_75 and later refuse an arch, types or
// head dims; else nullopt.
std::optional<std::string> gradient_refusal(const KernelSpec& spec, const Arch& arch);

// Shared by three templates that serve fp32, bf16, fp16 and 8 bits from one source each: both
// references and prefill_cpu.

// Returns why these templates do not serve the dtypes, as a sentence; nullopt if they do.
std::optional<std::string> any_dtype_refusal(const KernelSpec& spec);

// Returns values for kVLayout, kScaleBlockQ and kScaleBlockKv, which these templates use for every
// dtype. The renderer itself writes them only for a spec with 8-bit operands; for such a spec this
// returns none.
std::vector<Constant> constants_without_8_bits(const KernelSpec& spec);

// Constants that CPU kernels with vectors share.

// Returns all constants of a kernel with vectors and `scratch_bytes` of scratch for each thread.
std::vector<Constant> vector_constants(const KernelSpec& spec, const Arch& arch,
                                       int64_t scratch_bytes);

}  // namespace attune
