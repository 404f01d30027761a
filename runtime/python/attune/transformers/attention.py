# SPDX-License-Identifier: Apache-2.0
"""The attention function of transformers' AttentionInterface. Masks arrive as the MaskRule of masks.py,
which holds all that layers share. Each layer adds its scale, softcap, sinks and position bias."""
import torch

from ..core.flags import flag, flag_or_none
from ..ops.attention import attend_from_heads_first
from ..ops.heads_first import refuse_nested
from .mask_rule import MaskRule
from .paged import attend_packed

# Keywords of models with another attention, and their meaning.
_REFUSED = {
    "head_mask": "factors of heads", "block_indices": "chosen blocks of keys", "sinks": "sinks that are not s_aux",
    "block_table": "a table of pages"}


def _refuse(output_attentions, others):
    if flag_or_none("output_attentions", output_attentions):
        raise ValueError(
            "output_attentions is set, and attune makes no attention weights; must be False (load the model with "
            "attn_implementation=\"eager\" to see them)")
    for name, what in _REFUSED.items():
        if others.get(name) is not None:
            raise ValueError(
                f"{name} is given, {what}, which attune does not serve here; must be None (load the model with "
                "attn_implementation=\"eager\" or \"sdpa\")")


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None,
                      softcap=None, s_aux=None, is_causal=None, position_bias=None, output_attentions=False,
                      cu_seq_lens_q=None, cu_seq_lens_k=None, max_length_q=None, max_length_k=None, indices=None,
                      **others):
    """Returns (o [batch, seqlen_q, num_heads, head_dim_v], None) in transformers' form; o is contiguous.

    query: [batch, num_heads, seqlen_q, head_dim]; key and value have their own numbers of heads. Operands may lie in
    memory in any order.
    attention_mask: a MaskRule, None, or a tensor [batch, num_heads, seqlen_q, seqlen_kv] from the model (bool, or
    floats that are added). If it is given it alone tells which keys are seen, as in eager mode; otherwise
    sliding_window and is_causal do. indices [batch, seqlen_q, count]: of the keys that the mask shows, a row sees only
    these.
    Raises ValueError for arguments that attune does not serve."""
    if query.is_nested or key.is_nested or value.is_nested:
        refuse_nested(query, key, value)
    all_keys, keys = key.shape[2], None
    if output_attentions is not False or others:
        _refuse(output_attentions, others)
    if type(attention_mask) is MaskRule and attention_mask.is_written():
        attention_mask = attention_mask.tensor()
    if type(attention_mask) is MaskRule:
        keywords, keys = attention_mask.keywords, attention_mask.keys
        if attention_mask.seqlen_kv == 1 == query.shape[2] != key.shape[2]:
            keywords, keys = _of_one_key(attention_mask), None
        elif key.shape[2] != attention_mask.seqlen_kv:
            raise ValueError(
                f"key has {key.shape[2]} positions and the attention mask is of {attention_mask.seqlen_kv}; must be "
                "equal, or load the model with attn_implementation=\"eager\"")
        if keys is not None:
            start, stop = keys
            key, value = key[:, :, start:stop], value[:, :, start:stop]
            if position_bias is not None:
                position_bias = position_bias[..., start:stop]
    else:
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if is_causal is not True and is_causal is not False:
            is_causal = flag("is_causal", is_causal)
        most = (max_length_q, max_length_k)
        if is_causal and indices is None and None not in most and _finds_sequences(
                query, key, value, attention_mask, position_bias, dropout, s_aux, cu_seq_lens_q, cu_seq_lens_k):
            return attend_packed(query, key, value, cu_seq_lens_q, cu_seq_lens_k, *most, sliding_window, scaling,
                                 softcap, s_aux), None
        keywords, position_bias = _without_rule(query, key, attention_mask, is_causal, sliding_window, position_bias,
                                                cu_seq_lens_q, cu_seq_lens_k)
    choices = dict(keywords)
    if indices is not None:
        _show_chosen(choices, indices, all_keys, slice(None) if keys is None else slice(*keys))
    for name, given in (("softcap", softcap or
                         None), ("sinks", s_aux), ("bias", position_bias), ("dropout_p", dropout or None)):
        if given is not None:
            choices[name] = given
    if query.dtype is torch.float32 and query.is_cuda:
        choices["accuracy"] = "fast" if torch.backends.cuda.matmul.allow_tf32 else "split"
    return attend_from_heads_first(query, key, value, mask=choices.pop("mask", None), scale=scaling, **choices), None


def _of_one_key(rule):
    """Returns the keywords for a mask of one key, which applies to all keys. transformers makes such a mask from a
    layer whose cache has no keys (linear attention)."""
    return {"mask_tensor": rule.tensor()} if rule.keywords or rule.keys is not None else {}


def _show_chosen(choices, indices, count, kept):
    """Adds a mask to the keywords: rows see only the keys that `indices` lists, of `count` keys. kept: the slice of
    keys that the call still has. An index below 0 lists no key."""
    places = torch.where(indices < 0, count, indices).long()
    seen = torch.zeros((*indices.shape[:2], count + 1), dtype=torch.bool, device=indices.device).scatter(
        -1, places, True)[:, None, :, :count][..., kept]
    choices["mask_tensor"] = seen & choices["mask_tensor"] if "mask_tensor" in choices else seen


def _finds_sequences(query, key, value, mask, position_bias, dropout, sinks, cu_seq_lens_q, cu_seq_lens_k):
    """True if kernels can take rows and keys of sequences end to end by their lists, which may differ. This needs a
    call without gradients."""
    if mask is not None or position_bias is not None or dropout or cu_seq_lens_q is None or cu_seq_lens_k is None or (
            query.shape[0] != 1):
        return False
    return not (torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (query, key, value, sinks)))


def _without_rule(query, key, mask, is_causal, sliding_window, position_bias, cu_seq_lens_q, cu_seq_lens_k):
    """Returns keywords for attention() and the bias, for a mask that is a tensor or None."""
    rows, keys = query.shape[2], key.shape[2]
    if mask is not None:
        return _of_tensor(mask, keys, position_bias)
    keywords = {}
    if cu_seq_lens_q is not None:
        keywords["documents"] = _documents(rows, cu_seq_lens_q), _documents(
            keys, cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k)
    if is_causal and (rows > 1 or cu_seq_lens_q is not None) and rows != keys:
        raise ValueError(
            f"attention_mask is None for {rows} rows and {keys} keys of a causal module, so their alignment is not "
            "known; give an attention_mask, or as many rows as keys")
    if is_causal and rows > 1:
        keywords["mask"] = "causal_bottom_right"
        if sliding_window is not None:
            keywords["window"] = (sliding_window - 1, None)
    return keywords, position_bias


def _of_tensor(mask, keys, position_bias):
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or not (mask.dtype is torch.bool or
                                                                     mask.is_floating_point()):
        found = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise ValueError(
            f"attention_mask is {found}; must be None, a result of attune's mask function, or a bool or float tensor "
            "[batch, num_heads, seqlen_q, seqlen_kv]")
    mask = (mask[..., :keys] if mask.shape[3] > keys else mask).resolve_neg()
    if mask.dtype is torch.bool:
        return {"mask_tensor": mask}, position_bias
    return {}, mask if position_bias is None else mask + position_bias


def _documents(seqlen, cu_seq_lens):
    """Returns int32 [1, seqlen]: the sequence of a packed batch that each position belongs to."""
    positions = torch.arange(seqlen, device=cu_seq_lens.device)
    return torch.bucketize(positions, cu_seq_lens[1:].to(torch.int64), right=True).to(torch.int32)[None]
