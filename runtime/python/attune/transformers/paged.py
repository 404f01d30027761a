# SPDX-License-Identifier: Apache-2.0
"""transformers' continuous batching (generate_batch): packed rows of all requests, with keys that its paged cache has
packed.

Versions up to 5.22 call implementations named "paged|NAME", which fill the cache. Later versions fill the cache before,
and take only implementations with "flash" in their name."""
import functools

from ..core.copies import readable
from ..ops.kvcache import attention_kvcache


def _of_layer(window, given):
    """Returns the value for layers of this kind, if the cache has several kinds."""
    return given["full_attention" if window is None else "sliding_attention"] if isinstance(given, dict) else given


def attend_packed(query, key, value, cu_seq_lens_q, cu_seq_lens_k, most_rows, most_keys, window, scaling, softcap=None,
                  s_aux=None):
    """Returns attention of packed requests, [1, rows, num_heads, head_dim_v]; the last row of each request is at its
    last key.

    query: [1, num_heads, rows, head_dim], key, value: [1, num_heads_kv, keys, ..]. window: keys that a row sees, or
    None."""
    q, k, v = (readable(x).squeeze(0).transpose(0, 1) for x in (query, key, value))
    o = attention_kvcache(
        q, k, v, q_begins=cu_seq_lens_q.int(), seqlen_q=int(most_rows), kv_begins=cu_seq_lens_k.int(), seqlen_kv=min(
            int(most_keys), k.shape[0]), is_causal=True, window=None if window is None else (window - 1, None),
        scale=scaling, softcap=softcap or None, sinks=None if s_aux is None else s_aux.detach())
    return o[None]


def paged_forward(module, query, key, value, attention_mask, cache=None, cu_seq_lens_q=None, cu_seq_lens_k=None,
                  max_seqlen_q=None, max_seqlen_k=None, block_table=None, read_index=None, write_index=None,
                  dropout=0.0, scaling=None, sliding_window=None, softcap=None, s_aux=None, **others):
    """Implements "paged|NAME" for transformers up to 5.22: key and value are the new rows'. Returns (o [1, rows,
    num_heads, head_dim_v], None)."""
    if cache is None or cu_seq_lens_q is None:
        raise ValueError(
            f"cache is {'None' if cache is None else 'given'}, cu_seq_lens_q is "
            f"{'None' if cu_seq_lens_q is None else 'given'}; must be what generate_batch() passes (for other calls "
            f"drop 'paged|' from the name)")
    if block_table is not None:
        raise ValueError("block_table is given; must be None (set max_blocks_per_request to 0)")
    window = getattr(module, "sliding_window", None) if sliding_window is None else sliding_window
    key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx, read_index=read_index,
                              write_index=write_index)
    key, value = (x.transpose(0, 1)[None] for x in (key, value))
    return attend_packed(query, key, value, cu_seq_lens_q, _of_layer(window, cu_seq_lens_k), max_seqlen_q,
                         _of_layer(window, max_seqlen_k), window, module.scaling if scaling is None else scaling,
                         softcap, s_aux), None


def takes_prefix():
    """True if the installed transformers calls "paged|NAME" for any NAME."""
    try:
        from transformers.integrations import eager_paged, flash_paged  # noqa: F401
        from transformers.modeling_flash_attention_utils import lazy_import_paged_flash_attention  # noqa: F401
    except ImportError:
        return False
    return True


def serve_flash_names(names):
    """Makes later transformers, which load an implementation with "flash" in its name themselves, load attune.flash for
    these names."""
    from transformers import modeling_flash_attention_utils as utils
    load = getattr(utils, "_lazy_imports", None)
    if load is None or hasattr(load, "attune_names"):
        if load is not None:
            load.attune_names.update(names)
        return

    @functools.wraps(load)
    def lazy_imports(implementation, *args, **kwargs):
        if implementation not in lazy_imports.attune_names:
            return load(implementation, *args, **kwargs)
        from .. import flash
        return (flash.flash_attn_func, flash.flash_attn_varlen_func, flash.flash_attn_with_kvcache, utils._pad_input,
                utils._unpad_input)

    lazy_imports.attune_names = set(names)
    utils._lazy_imports = lazy_imports
