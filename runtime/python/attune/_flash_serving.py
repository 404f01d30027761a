# SPDX-License-Identifier: Apache-2.0
"""FlashAttention's functions for serving on attune: flash_attn_with_kvcache and the varlen functions. See flash.py."""
from ._append import append_kv
from ._attention import attention
from ._kvcache import attention_kvcache, check_begins
from ._known import tell_ignored, window_of
from ._padding import is_between, widened_arguments
from ._scores import refuse_other_extents


def _ignore(function, **hints):
    given = [f"{name}={value}" for name, value in hints.items() if value not in (None, 0, 1)]
    if given:
        tell_ignored(function, given)


def _rotated(x, cos, sin, positions, interleaved):
    """x [batch, seqlen, heads, head_dim] with its first 2 * cos.shape[1] columns turned by the angles of `positions` [batch, seqlen]."""
    columns = 2 * cos.shape[1]
    c, s = cos[positions].unsqueeze(2).float(), sin[positions].unsqueeze(2).float()
    part = x[..., :columns].float()
    first, second = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    turned = (first * c - second * s, first * s + second * c)
    whole = x.new_empty(x.shape)
    if interleaved:
        whole[..., 0:columns:2], whole[..., 1:columns:2] = turned
    else:
        whole[..., :columns // 2], whole[..., columns // 2:columns] = turned
    whole[..., columns:] = x[..., columns:]
    return whole


def _write_codes(cache, new, positions, block_table, slots):
    """Writes rows [batch, seqlen_new, heads, head_dim] of a cache's own 8 bits at their positions [batch, seqlen_new], by PyTorch's operations, which a
    graph can capture. Rows that have no place are not written."""
    import torch
    cache, new, size = cache.view(torch.uint8), new.view(torch.uint8).flatten(0, 1), cache.shape[1]
    if new.shape[0] == 0 or cache.shape[0] == 0:
        return
    if block_table is not None:
        column = positions // size
        places = block_table.long().gather(1, column.clamp(0, block_table.shape[1] - 1))
        inside = (column >= 0) & (column < block_table.shape[1])
    else:
        places = (slots.long() if slots is not None else torch.arange(positions.shape[0], device=positions.device))[:, None].expand_as(positions)
        inside = (positions >= 0) & (positions < size)
    inside = (inside & (places >= 0) & (places < cache.shape[0])).flatten()
    # A row without a place does what a row with one does; if none has, it writes what stands there.
    row = torch.where(inside, torch.arange(inside.shape[0], device=inside.device), inside.int().argmax())
    place, key = (places.flatten()[row].clamp(0, cache.shape[0] - 1), positions.flatten()[row] % size)
    cache[place, key] = torch.where(inside.any(), new[row], cache[place, key])


def _as_pages_of_a_key(k_cache, v_cache, lengths, leftpad, slots, scales):
    """Slots whose keys begin behind padding, as pages of one key each: what stands in the padding is not read."""
    import torch
    count, room = k_cache.shape[:2]
    own = torch.arange(leftpad.shape[0], device=leftpad.device) if slots is None else slots.long()
    key = leftpad.long()[:, None] + torch.arange(room, device=leftpad.device)
    inside = (key >= 0) & (key < room) & (own >= 0)[:, None] & (own < count)[:, None]
    table = torch.where(inside, own[:, None] * room + key, -1).int()
    lengths = (room if lengths is None else lengths) - leftpad
    by_key = {name: scale.expand(count, room, scale.shape[2]).reshape(-1, 1, scale.shape[2]) if torch.is_tensor(scale) and scale.dim() == 3 else scale
              for name, scale in scales.items()}
    return *(cache.reshape(-1, 1, *cache.shape[2:]) for cache in (k_cache, v_cache)), lengths.clamp(min=0), table, by_key


def _refuse_wrong_lengths(lengths, new, room):
    """Where the host sees them, before anything is written."""
    if lengths is None or lengths.is_cuda:
        return
    for i, length in enumerate(lengths.tolist()):
        if not 0 <= length <= room - new:
            raise ValueError(f"cache_seqlens[{i}] is {length}; accepted are 0 to {room - new}: the cache has room for {room} keys of a request, of which {new} come")


def _places_of_rows(k_cache, lengths, count, leftpad, slots):
    """row_slots and positions of append_kv() for the last `count` keys of each request, [batch, count]: angles count from the end of the padding."""
    import torch
    at = (lengths - count).long()[:, None] + torch.arange(count, device=lengths.device)
    own = torch.arange(lengths.shape[0], device=lengths.device) if slots is None else slots.long()
    inside = (at >= 0) & (at < k_cache.shape[1]) & (own >= 0)[:, None] & (own < k_cache.shape[0])[:, None]
    return torch.where(inside, own[:, None] * k_cache.shape[1] + at, -1), (at - leftpad.long()[:, None]).clamp(min=0)


def _append(q, k_cache, v_cache, k, v, cos, sin, before, turns_alike, interleaved, places, scales, leftpad):
    """Writes k and v behind `before` keys of each request, turned; returns q turned, and lengths. `turns_alike`: rows of q stand where those of k do."""
    import torch
    lengths = k.shape[1] if before is None else before + k.shape[1]
    if not torch.is_tensor(lengths):
        lengths = torch.full((k.shape[0],), lengths, dtype=torch.int32, device=k.device)
    if k.dtype == k_cache.dtype and k.dtype.itemsize == 1:
        if cos is not None:
            raise ValueError(f"rotary_cos is given and k is {k.dtype}; accepted is k of 16 bits, which is turned and then rounded")
        positions = (lengths - k.shape[1]).long()[:, None] + torch.arange(k.shape[1], device=k.device)
        for cache, new in ((k_cache, k), (v_cache, v)):
            _write_codes(cache, new, positions, places["page_table"], places["slots"])
        return q, lengths
    if k.dtype != q.dtype:
        raise ValueError(f"k is {k.dtype}, q is {q.dtype} and the cache {k_cache.dtype}; accepted is k of q's dtype, or of an 8-bit cache's, written as it stands")
    of_rows = dict(kv_lengths=lengths, **places)
    if leftpad is not None and cos is not None:
        of_rows = dict(zip(("row_slots", "positions"), _places_of_rows(k_cache, lengths, k.shape[1], leftpad, places["slots"])))
    with torch.no_grad():
        turned = append_kv(k, v, k_cache, v_cache, cos=cos, sin=sin, interleaved=interleaved, q=q if turns_alike else None, **of_rows, **scales)
    if turned is None and cos is not None:  # all rows at the first new position
        first = (lengths - k.shape[1] - (0 if leftpad is None else leftpad)).long().clamp(min=0)[:, None].expand(-1, q.shape[1])
        turned = _rotated(q, cos, sin, first + (torch.arange(q.shape[1], device=q.device) if turns_alike is None else 0), interleaved)
    return q if turned is None else turned, lengths


def _of_slots(descale, slots, k_cache):
    """Factors of each request and head as those of its slot, which all its keys have: [slots, 1, num_heads_kv]."""
    if slots is None and descale.shape[0] == k_cache.shape[0]:
        return descale[:, None]
    made = descale.new_ones((k_cache.shape[0], descale.shape[1]))
    if slots is None:
        made[:descale.shape[0]] = descale
    else:
        made.index_copy_(0, slots.long(), descale)
    return made[:, None]


def _scales_of(k_cache, block_table, slots, **descales):
    """k_scale and v_scale of attention_kvcache(): FlashAttention has one for each request and head, a cache one for each head, or for each slot."""
    scales = {}
    for name, descale in descales.items():
        if descale is None:
            descale = 1.0 if k_cache.dtype.itemsize == 1 else None
        elif descale.dim() == 2 and descale.shape[0] > 1 and descale.stride(0) == 0:
            descale = descale[:1]
        elif descale.dim() == 2 and descale.shape[0] > 1:
            if block_table is not None:
                raise ValueError(f"{name} has shape {tuple(descale.shape)}; accepted beside block_table are factors of heads that all requests share: "
                                 "[1, num_heads_kv], or that with .expand(batch, num_heads_kv); without it those of each request, too")
            descale = _of_slots(descale, slots, k_cache)
        scales[name.replace("descale", "scale")] = descale
    return scales


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
                            cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                            rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False, *, k_descale=None, v_descale=None):
    """FlashAttention's attention over a cache, of the arguments of its version 2. Tensors of PyTorch, without gradients.

    q: [batch, seqlen_q, num_heads_q, head_dim]. k_cache, v_cache: [slots, seqlen_cache, num_heads_kv, head_dim], or with block_table (int32
    [batch, pages]) [num_pages, page_size, num_heads_kv, head_dim], pages of any size. cache_seqlens: int32 [batch] or a number, keys in the cache
    before this call; None with k is 0, without k all. k, v: [batch, seqlen_new, num_heads_kv, head_dim], written into the cache behind those. rotary_cos,
    rotary_sin: [positions, rotary_dim / 2], which turn k and q before. cache_batch_idx: int32 [batch], the slot of each request. causal: the last row
    sees all keys. Returns out, or (out, lse) with return_softmax_lse; a row without keys has lse -inf (FlashAttention: +inf).

    k_descale, v_descale (version 3): float32 [batch, num_heads_kv] of caches of 8 bits, with block_table expanded from [1, num_heads_kv]; None is 1. Then q has 16 bits, and k and
    v too, which are divided by them and rounded, or the cache's dtype, which is written as it stands.

    cache_leftpad: int32 [batch], without block_table: keys of a request begin there in its slot, and cache_seqlens counts from the slot's begin; angles
    count from the first key.

    Writing and turning are one launch of append_kv(), on the same stream: rows that have no place are not written. num_splits is ignored."""
    import torch
    if cache_leftpad is not None and block_table is not None:
        raise ValueError("cache_leftpad is given beside block_table; accepted is one of them: keys of a request begin with its first page")
    if cache_leftpad is not None and (cache_leftpad.dtype != torch.int32 or tuple(cache_leftpad.shape) != (q.shape[0],)):
        raise ValueError(f"cache_leftpad is {cache_leftpad.dtype} of shape {tuple(cache_leftpad.shape)}; accepted is int32 [batch], of {q.shape[0]} requests")
    if (k is None) != (v is None) or (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("k and v, and rotary_cos and rotary_sin, go together; accepted are both of a pair or none")
    if rotary_cos is not None and k is None:
        raise ValueError("rotary_cos is given without k; accepted is rotary_cos with k and v, which it turns before they are written")
    _ignore("flash_attn_with_kvcache", num_splits=num_splits)
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((q.shape[0],), cache_seqlens, dtype=torch.int32, device=q.device)
    scales = _scales_of(k_cache, block_table, cache_batch_idx, k_descale=k_descale, v_descale=v_descale)
    if k is not None:
        moves = causal or window_of(window_size) is not None or q.shape[1] == 1  # else all rows stand at the first new position
        alike = rotary_cos is not None and moves and q.shape[1] == k.shape[1]
        turns_alike = True if alike else None if moves else False
        room = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
        _refuse_wrong_lengths(cache_seqlens, k.shape[1], room)
        q, cache_seqlens = _append(q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, turns_alike, rotary_interleaved,
                                   dict(page_table=block_table, slots=cache_batch_idx), scales, cache_leftpad)
    if cache_leftpad is not None:
        k_cache, v_cache, cache_seqlens, block_table, scales = _as_pages_of_a_key(k_cache, v_cache, cache_seqlens, cache_leftpad, cache_batch_idx, scales)
        cache_batch_idx = None
    found = attention_kvcache(q, k_cache, v_cache, cache_seqlens, page_table=block_table, slots=cache_batch_idx, is_causal=bool(causal),
                              window=window_of(window_size), scale=softmax_scale, return_lse=True, softcap=softcap if softcap else None,
                              alibi_slopes=alibi_slopes, **scales)
    return found if return_softmax_lse else found[0]


def _documents(cu_seqlens, first, rows, like):
    """The number of the sequence that each row from `first` on is of; rows before the first and behind the last have ones of their own, -1 and batch."""
    import torch
    begins = cu_seqlens.to(torch.int64).contiguous()
    return (torch.searchsorted(begins, torch.arange(first, first + rows, device=like.device), right=True) - 1).to(torch.int32)[None]


def _of_sequences(tensor, cu_seqlens):
    """(first, end) of the rows that sequences have, where the host sees them; elsewhere of all."""
    return (int(cu_seqlens[0]), int(cu_seqlens[-1])) if cu_seqlens.device.type == "cpu" else (0, tensor.shape[0])


def _finds_sequences(q, cu_seqlens_q, cu_seqlens_k, looks):
    """Whether kernels that find sequences by themselves take the call: fast ones are for Hopper, and no others know positions in two lists."""
    import torch
    if q.is_cuda and torch.cuda.get_device_capability(q.device) == (9, 0):
        return True
    return cu_seqlens_q is not cu_seqlens_k and (looks or not q.is_cuda)


def _refuse_wrong_begins(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, has_pages):
    """Where the host sees them: kernels take lists at their word."""
    for name, begins in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if not hasattr(begins, "dim") or begins.dim() != 1 or begins.shape[0] != cu_seqlens_q.shape[0] or begins.is_floating_point():
            raise ValueError(f"{name} is {begins!r}; accepted are int32 [batch + 1], where sequences begin and where the last one ends")
    if not q.is_cuda:
        check_begins("cu_seqlens_q", cu_seqlens_q, "rows", q.shape[0], "max_seqlen_q", max_seqlen_q)
        if not has_pages:
            check_begins("cu_seqlens_k", cu_seqlens_k, "keys", k.shape[0], "max_seqlen_k", max_seqlen_k)


def _slopes_of_sequences(alibi_slopes, of_rows):
    """A score_mod for slopes [batch, num_heads] of sequences that stand end to end."""
    rows = of_rows[0]
    return lambda score, b, h, q_idx, kv_idx: score - alibi_slopes[rows[q_idx], h] * abs(q_idx - kv_idx)


def _wider(q, k, v, given):
    """Packed q, k and v of head dims that kernels take: copies, where theirs are between, of which a warning tells as of attention()."""
    if not is_between(q[None], k[None], v[None]):
        return q, k, v
    wide = widened_arguments({"q": q[None], "k": k[None], "v": v[None], "out": None, "pad_head_dim": None, "scale": given["scale"]})
    given["scale"] = wide["scale"]
    return tuple(wide[name][0] for name in "qkv")


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
                           window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None):
    """FlashAttention of sequences end to end, of the arguments of its version 2. Tensors of PyTorch; gradients of q, k and v without block_table.

    q: [rows, num_heads_q, head_dim], k, v: [keys, num_heads_kv, head_dim]; cu_seqlens_q, cu_seqlens_k: int32 [batch + 1], where sequences begin. A row sees
    keys of its own sequence; with gradients, and of one list for both elsewhere than on Hopper, keys of others weigh 0 and must be finite. Rows before the
    first and behind the last sequence are of none: what out and lse have there is not defined. With block_table (int32 [batch, pages]) k and v are pages [num_pages, page_size, num_heads_kv, head_dim], and
    cu_seqlens_k says how many keys each has. With gradients, where a mask, window or slopes look at positions, cu_seqlens_q and cu_seqlens_k must be
    equal: give one tensor for both, since comparing two waits for the device. On a CPU begins that run backwards or out of q and k, and a max_seqlen that is
    less than a sequence's, are refused; on a GPU nobody looks. Returns out; with return_attn_probs (out, lse [num_heads_q, rows],
    None). deterministic: of gradients, as of flash_attn_func(). Refused: dropout_p above 0."""
    import torch
    if dropout_p:
        raise ValueError(f"dropout_p is {dropout_p}; accepted is 0.0 of sequences end to end")
    given = dict(scale=softmax_scale, window=window_of(window_size), softcap=softcap if softcap else None, return_lse=bool(return_attn_probs))
    _refuse_wrong_begins(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table is not None)
    of_slopes, longest_q = (cu_seqlens_q.shape[0] - 1, q.shape[1]), min(int(max_seqlen_q), q.shape[0])  # callers may give the most of any batch
    if alibi_slopes is not None:  # here: not all kernels below know a batch
        refuse_other_extents("alibi_slopes", tuple(alibi_slopes.shape), ("batch", "num_heads_q"), of_slopes)
    if block_table is not None:
        found = attention_kvcache(q, k, v, (cu_seqlens_k[1:] - cu_seqlens_k[:-1]).int(), page_table=block_table, q_begins=cu_seqlens_q.int(),
                                  seqlen_q=longest_q, is_causal=bool(causal), alibi_slopes=alibi_slopes, **given)
        return (*found, None) if return_attn_probs else found
    looks = causal or given["window"] is not None or alibi_slopes is not None
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))) and _finds_sequences(q, cu_seqlens_q, cu_seqlens_k, looks):
        columns = v.shape[2]
        q, k, v = _wider(q, k, v, given)
        found = attention_kvcache(q, k, v, q_begins=cu_seqlens_q.int(), seqlen_q=longest_q, kv_begins=cu_seqlens_k.int(),
                                  seqlen_kv=min(int(max_seqlen_k), k.shape[0]), is_causal=bool(causal), alibi_slopes=alibi_slopes, **given)
        out, lse = found if return_attn_probs else (found, None)
        out = out if out.shape[2] == columns else out[..., :columns]
        return (out, lse, None) if return_attn_probs else out
    if looks and cu_seqlens_q is not cu_seqlens_k and not torch.equal(cu_seqlens_q, cu_seqlens_k):
        raise ValueError("cu_seqlens_q and cu_seqlens_k differ, with a mask, a window or slopes that look at positions; accepted are equal ones, or keys in "
                         "pages with block_table=")
    rows, (first, end), (first_key, end_key) = q.shape[0], _of_sequences(q, cu_seqlens_q), _of_sequences(k, cu_seqlens_k)
    if looks:  # what stands behind the last sequence is of none, and would move the diagonal
        end = end_key = min(end, end_key)
    q, k, v = q[first:end], k[first_key:end_key], v[first_key:end_key]
    of_rows = _documents(cu_seqlens_q, first, end - first, q)
    is_one = cu_seqlens_q is cu_seqlens_k and (first, end) == (first_key, end_key)
    of_keys = of_rows if is_one else _documents(cu_seqlens_k, first_key, end_key - first_key, k)
    if alibi_slopes is not None and alibi_slopes.dim() == 2 and alibi_slopes.shape[0] > 1:
        given["score_mod"] = _slopes_of_sequences(alibi_slopes.expand(of_slopes), of_rows)
        alibi_slopes = None
    if deterministic:
        given["deterministic"] = True
    given["return_lse"] = True
    out, lse = attention(q[None], k[None], v[None], "causal_bottom_right" if causal else None, documents=(of_rows, of_keys), alibi_slopes=alibi_slopes,
                         **given)
    out, lse = out[0], lse[0]
    if rows != q.shape[0]:
        out, lse = (torch.nn.functional.pad(out, (0, 0, 0, 0, first, rows - end)),
                    torch.nn.functional.pad(lse, (first, rows - end), value=-float("inf")))
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                                     alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """flash_attn_varlen_func() of qkv [rows, 3, num_heads, head_dim], without copies."""
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal, window_size, softcap,
                                  alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
                                    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """flash_attn_varlen_func() of kv [keys, 2, num_heads_kv, head_dim], without copies."""
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, window_size,
                                  softcap, alibi_slopes, deterministic, return_attn_probs)
