# SPDX-License-Identifier: Apache-2.0
"""Names of arguments in FlashAttention and PyTorch's SDPA, and attune's names for them. Used in errors of
ops/public.py."""
WORDS = {
    "causal": "mask=\"causal\" or is_causal=True",
    "attn_mask": "mask_tensor (bool, True shows a key) or bias (numbers that are added)",
    "attention_mask": "mask_tensor (bool, True shows a key) or key_lengths", "softmax_scale": "scale",
    "sm_scale": "scale", "window_size": "window", "sliding_window": "window=(keys - 1, 0)", "dropout": "dropout_p",
    "return_softmax_lse": "return_lse", "return_attn_probs": "return_lse",
    "enable_gqa": "nothing: k and v may have fewer heads than q", "learnable_sink": "sinks"}


# The names of caches and rotary tables, for attention_kvcache() and append_kv().
OF_CACHES = {
    **WORDS, "attn_mask": "mask_mod (attune.mask_mod() makes programs)",
    "attention_mask": "kv_lengths (keys of each request) or mask_mod", "cache_seqlens": "kv_lengths, with the new keys",
    "seqused_k": "kv_lengths", "block_table": "page_table", "cache_batch_idx": "slots", "cu_seqlens_q": "q_begins",
    "cu_seqlens_k": "kv_begins", "max_seqlen_q": "seqlen_q", "max_seqlen_k": "seqlen_kv", "rotary_cos": "cos",
    "rotary_sin": "sin", "rotary_interleaved": "interleaved", "k_descale": "k_scale", "v_descale": "v_scale"}


def explained(error, given, words=WORDS):
    """Returns a call's TypeError with attune's names of arguments; `error` itself if `given` has no such name."""
    hints = [f"{name} is {words[name]} here" for name in given if name in words]
    return TypeError(f"{error}; {', '.join(hints)}") if hints else error
