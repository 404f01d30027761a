# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's interface on attune, in modules of the same names. It has wrappers with plan() and run() over lists of
pages, and functions for one request, for appended rows and for merged states. Shapes, layouts (NHD, HND) and the base
of lse (2) are FlashInfer's.

Each argument is used, or checked and refused by its name. Workspaces may be given, but are not used. plan() writes its
lists into buffers that are given; run() writes out and lse. Hints (backend, use_tensor_cores, enable_pdl,
use_fp16_qk_reduction, non_blocking) change nothing, because the tuner chooses kernels.
plan() only moves the lists to the workspace's device (without a workspace, to the lists' device), because attune's
kernels need no plan of a step. run()'s tensors must have the dtypes given to plan(). A row that sees no key gives 0 and
an lse of -inf.

Not served, with an error that names the argument: rotary positions inside attention (append_kv() rotates k and q when k
is written), ALiBi without a causal mask, and programs of jit_args. For attune's own functions see
attune.attention_kvcache() and attune.cascade()."""
from .attention import BatchAttention, BatchAttentionWithAttentionSinkWrapper  # noqa: F401
from .cascade import (
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper,
    BatchPrefillWithSharedPrefixPagedKVCacheWrapper,  # noqa: F401
    MultiLevelCascadeAttentionWrapper,
    merge_state,
    merge_state_in_place,
    merge_states)
from .decode import (
    BatchDecodeWithPagedKVCacheWrapper,
    CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
    fast_decode_plan,  # noqa: F401
    single_decode_with_kv_cache)
from .mla import BatchMLAPagedAttentionWrapper  # noqa: F401
from .page import (
    append_paged_kv_cache,
    append_paged_mla_kv_cache,
    get_batch_indices_positions,
    get_seq_lens)  # noqa: F401
from .prefill import (
    BatchPrefillWithPagedKVCacheWrapper,
    BatchPrefillWithRaggedKVCacheWrapper,
    single_prefill_with_kv_cache,  # noqa: F401
    single_prefill_with_kv_cache_return_lse)
from .quantization import packbits, segment_packbits  # noqa: F401
from .rope import (
    apply_llama31_rope,
    apply_llama31_rope_inplace,
    apply_llama31_rope_pos_ids,
    apply_llama31_rope_pos_ids_inplace,
    apply_rope,  # noqa: F401
    apply_rope_inplace,
    apply_rope_pos_ids,
    apply_rope_pos_ids_inplace,
    apply_rope_with_cos_sin_cache,
    apply_rope_with_cos_sin_cache_inplace)
from .sparse import BlockSparseAttentionWrapper, VariableBlockSparseAttentionWrapper  # noqa: F401
