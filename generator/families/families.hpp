// SPDX-License-Identifier: Apache-2.0
// The families: each is a KernelTemplate in the file of its name below this folder. Used by
// generator/template_registry.cpp, which orders them, and by tests.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

// Op prefill, and the references of all forward ops.
const KernelTemplate& prefill_cpu();
const KernelTemplate& prefill_cpu_bf16();
const KernelTemplate& prefill_sm75();
const KernelTemplate& prefill_sm80();
const KernelTemplate& prefill_sm80_tf32();
const KernelTemplate& prefill_sm89();
const KernelTemplate& prefill_sm90();
const KernelTemplate& prefill_sm90_fp8();
const KernelTemplate& reference_cpu();
const KernelTemplate& reference_cuda();

// Op attention_backward.
const KernelTemplate& backward_cpu();
const KernelTemplate& backward_lists_cpu();
const KernelTemplate& backward_lists_sm80();
const KernelTemplate& backward_reference_cpu();
const KernelTemplate& backward_reference_cuda();
const KernelTemplate& backward_sm80();
const KernelTemplate& backward_sm90();
const KernelTemplate& backward_sm90_band();
const KernelTemplate& backward_sm90_one_kernel();
const KernelTemplate& backward_sm90_stored();
const KernelTemplate& score_gradient_sm80();

// Ops over caches: attention_kvcache, append_kv and merge.
const KernelTemplate& append_kv_cpu();
const KernelTemplate& append_kv_cuda();
const KernelTemplate& cache_sm90();
const KernelTemplate& decode_cpu();
const KernelTemplate& decode_sm80();
const KernelTemplate& merge_cpu();
const KernelTemplate& merge_cuda();
const KernelTemplate& mla_sm90();

// Ops index_scores and top_k, which choose keys.
const KernelTemplate& index_scores_cpu();
const KernelTemplate& index_scores_sm80();
const KernelTemplate& top_k_cpu();
const KernelTemplate& top_k_cuda();

// Ops block_map and quantise.
const KernelTemplate& block_map_cpu();
const KernelTemplate& block_map_cuda();
const KernelTemplate& quantise_cpu();
const KernelTemplate& quantise_cuda();

}  // namespace attune
