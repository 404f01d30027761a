# SPDX-License-Identifier: Apache-2.0
"""flash_attn_with_kvcache(): append_kv() writes new rows of k and v, then attention_kvcache() reads the cache. See
flash/."""
from collections import namedtuple

from ..core.flags import flag
from ..core.problem import whole
from ..core.torch_state import refuse_gradients
from ..ops.append import append_kv
from ..ops.kvcache import check_begins
from ..adapters.arguments import chunk_of, off_or_number, window_of
from ..adapters.errors import check_tensors, named
from ..adapters.lists import host_sees, is_recorded, requests_of_rows, write_codes
from . import arguments
from .forward_alone import forward_alone
from .latent import attend_with, check_second_product

_FUNCTION = "flash_attn_with_kvcache"
_NAMES = {
    "q_begins": "cu_seqlens_q", "seqlen_q": "max_seqlen_q", "kv_lengths": "cache_seqlens", "slots": "cache_batch_idx",
    "scale": "softmax_scale", "is_causal": "causal", "k_scale": "k_descale", "v_scale": "v_descale",
    "cos": "rotary_cos", "sin": "rotary_sin", "mask_mod": "attention_chunk"}
_NO_BACKWARD = (
    "flash_attn_with_kvcache(), which has none, as in FlashAttention; call it without gradients, or use "
    "flash_attn_varlen_func() or flash_attn_func() for keys that are in no cache")
_Cache = namedtuple("_Cache", "k v block_table slots room batch")
_New = namedtuple("_New", "k v cu_seqlens")  # rows to write
_Angles = namedtuple("_Angles", "cos sin interleaved seqlens moves")  # moves: rows of q have different positions


def _rotated(x, angles, positions):
    """Returns x [.., heads, head_dim] with its first 2 * cos.shape[1] columns rotated by the angles of `positions`
    [..]."""
    columns = 2 * angles.cos.shape[1]
    positions = positions.clamp(0, angles.cos.shape[0] - 1)
    c, s = (table[positions].unsqueeze(-2).float() for table in (angles.cos, angles.sin))
    part = x[..., :columns].float()
    first, second = (part[..., 0::2], part[..., 1::2]) if angles.interleaved else part.chunk(2, -1)
    turned = (first * c - second * s, first * s + second * c)
    whole_rows = x.new_empty(x.shape)
    if angles.interleaved:
        whole_rows[..., 0:columns:2], whole_rows[..., 1:columns:2] = turned
    else:
        whole_rows[..., :columns // 2], whole_rows[..., columns // 2:columns] = turned
    whole_rows[..., columns:] = x[..., columns:]
    return whole_rows


def _as_pages_of_a_key(cache, lengths, leftpad, scales):
    """Returns a cache whose keys begin after padding as pages of one key each, with its lengths and factors. The
    padding is not read.

    On a GPU, a leftpad below 0 counts as 0, and one beyond the keys leaves no keys."""
    import torch
    leftpad = leftpad.long().clamp(min=0)
    requests = torch.arange(leftpad.shape[0], device=leftpad.device)[:, None].expand(-1, cache.room)
    table = _row_slots(cache, requests, leftpad[:, None] + torch.arange(cache.room, device=leftpad.device)).int()
    lengths = (cache.room if lengths is None else lengths.long()) - leftpad
    count, size = cache.k.shape[:2]
    by_key = {
        name: scale.expand(count, size, scale.shape[2]).reshape(-1, 1, scale.shape[2])
        if torch.is_tensor(scale) and scale.dim() == 3 else scale
        for name, scale in scales.items()}
    k, v = (x.reshape(-1, 1, *x.shape[2:]) for x in (cache.k, cache.v))
    return _Cache(k, v, table, None, cache.room, cache.batch), lengths.clamp(min=0).int(), by_key


def _places_of(x, cu_seqlens, first, moves=True):
    """Returns the request of each row of x, and its position, both int64. A request's rows begin at position
    first[request]."""
    import torch
    if cu_seqlens is None:
        steps = torch.arange(x.shape[1], device=x.device)
        requests = torch.arange(x.shape[0], device=x.device)[:, None].expand(x.shape[:2])
        return requests, first.long()[:, None] + (steps if moves else steps * 0)
    requests, last = requests_of_rows(cu_seqlens, x.shape[0]), first.shape[0] - 1
    of = requests.clamp(0, max(last, 0))
    steps = torch.arange(x.shape[0], device=x.device) - cu_seqlens.long()[of] if moves else 0
    return torch.where(requests <= last, requests, -1), first.long()[of] + steps


def _row_slots(cache, requests, positions):
    """Returns row_slots for append_kv(): the place in the cache for rows of `requests` at `positions` (same shape,
    int64), or -1 for rows without a place."""
    import torch
    count, size = cache.k.shape[:2]
    of = requests.clamp(min=0)
    if cache.block_table is None:
        place, at, known = of if cache.slots is None else cache.slots.long()[of], positions, positions < size
    elif cache.block_table.shape[1] == 0:
        return torch.full_like(positions, -1)
    else:
        column, at, columns = positions // size, positions % size, cache.block_table.shape[1]
        place, known = cache.block_table.long()[of, column.clamp(0, columns - 1)], column < columns
    known = known & (requests >= 0) & (positions >= 0) & (place >= 0) & (place < count)
    return torch.where(known, place * size + at, -1)


def _append(q, cu_seqlens_q, cache, new, before, angles, scales):
    """Writes new rows, rotated, after the `before` keys of each request. Returns rotated q, and the new lengths."""
    k, v, cu_seqlens_k = new
    counts = k.shape[1] if cu_seqlens_k is None else cu_seqlens_k[1:] - cu_seqlens_k[:-1]
    lengths = before + counts
    if q.device.type == "cpu" and is_recorded(q):
        lengths = before.where(before < 0, lengths)  # stay below 0, which the ops refuse when they get the values
    if k.dtype == cache.k.dtype and k.dtype.itemsize == 1:
        if angles is not None:
            raise ValueError(
                f"rotary_cos is given and k is {k.dtype}; k must be bf16 or fp16, which is rotated and then rounded")
        places = _row_slots(cache, *_places_of(k, cu_seqlens_k, before))
        for whole_cache, rows in ((cache.k, k), (cache.v, v)):
            write_codes(whole_cache, rows, places)
        return q, lengths
    if k.dtype != q.dtype:
        raise ValueError(
            f"k is {k.dtype}, q is {q.dtype} and the cache {cache.k.dtype}; k must have q's dtype, or an 8-bit cache's "
            f"dtype (it is then written unchanged)")
    given = dict(kv_lengths=lengths, page_table=cache.block_table, slots=cache.slots)
    if cu_seqlens_k is not None:
        given.update(q_begins=cu_seqlens_k, seqlen_q=k.shape[0])
    alike = False
    if angles is not None:
        alike = angles.moves and (cu_seqlens_q is cu_seqlens_k) and q.shape[:-2] == k.shape[:-2]
        given.update(cos=angles.cos, sin=angles.sin, interleaved=angles.interleaved, q=q if alike else None)
        if angles.seqlens is not None:  # rows are rotated by other positions than those they are written to
            at = _places_of(k, cu_seqlens_k, angles.seqlens)[1]
            places = _row_slots(cache, *_places_of(k, cu_seqlens_k, before))
            given = {
                **{name: value
                   for name, value in given.items() if name in ("cos", "sin", "interleaved", "q")}, "row_slots": places,
                "positions": at.contiguous()}
    turned = append_kv(k, v, cache.k, cache.v, **given, **scales)
    if angles is not None and not alike:
        turned = _rotated(
            q, angles,
            _places_of(q, cu_seqlens_q, before if angles.seqlens is None else angles.seqlens, angles.moves)[1])
    return q if turned is None else turned, lengths


def _lengths_of(name, lengths, batch, q):
    """Returns lengths as int32 [batch], from a number or a tensor; None for None. A number that torch.compile made a
    symbol stays one, so that one graph serves all."""
    import torch
    if lengths is None:
        return None
    if torch.is_tensor(lengths):
        arguments.check_list(name, lengths, (batch,), "[batch]", q)
        return lengths
    if not torch.compiler.is_compiling() or not isinstance(lengths, int) or isinstance(lengths, bool):
        lengths = whole(name, lengths)
    return torch.full((batch,), lengths, dtype=torch.int32, device=q.device)


def _check_pairs(k, v, cos, sin, cu_seqlens_q, max_seqlen_q, cu_seqlens_k_new):
    if (k is None) != (v is None) or (cos is None) != (sin is None):
        raise ValueError("one of k and v, or of rotary_cos and rotary_sin, is given; give both or neither")
    for name, given in (("rotary_cos", cos), ("cu_seqlens_k_new", cu_seqlens_k_new)):
        if given is not None and k is None:
            raise ValueError(f"{name} is given without k; give it with k and v, the rows to write")
    if (cu_seqlens_q is None) != (max_seqlen_q is None):
        raise ValueError("one of cu_seqlens_q and max_seqlen_q is given; give both (for rows end to end) or neither")


def _check_lists(q, k, batch, cache_batch_idx, cache_leftpad, table, cu_seqlens_q, max_seqlen_q, cu_seqlens_k_new,
                 rotary_seqlens):
    """Checks shapes and types of lists, and the begins of rows if the host sees them. table: (name, tensor), or None.
    """
    of_batch = {"cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad, "rotary_seqlens": rotary_seqlens}
    for name, tensor in of_batch.items():
        if tensor is not None:
            arguments.check_list(name, tensor, (batch,), "[batch]", q)
    for name, tensor in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k_new", cu_seqlens_k_new)):
        if tensor is not None:
            arguments.check_list(name, tensor, (batch + 1,), "[batch + 1]", q)
    for name, begins, rows, most in (("cu_seqlens_q", cu_seqlens_q, q, max_seqlen_q), ("cu_seqlens_k_new",
                                                                                       cu_seqlens_k_new, k, None)):
        if begins is not None and host_sees(begins):
            check_begins(name, begins, "rows", rows.shape[0], "max_seqlen_q", rows.shape[0] if most is None else most)
    if table is not None:
        name, tensor = table
        rows, columns = tensor.shape if getattr(tensor, "ndim", 0) == 2 else (batch, 1)
        alone = cache_batch_idx is None  # otherwise it picks rows of the table
        arguments.check_list(name, tensor, (batch if alone else rows, columns),
                             "[batch, pages]" if alone else "[rows, pages]", q)


def _picked(table, cache_batch_idx):
    """Returns the table rows that cache_batch_idx picks. Rows that do not exist have no pages."""
    count = table.shape[0]
    if count == 0:
        return table.new_full((cache_batch_idx.shape[0], table.shape[1]), -1)
    rows = cache_batch_idx.long()
    return table[rows.clamp(0, count - 1)].masked_fill(((rows < 0) | (rows >= count))[:, None], -1)


def _check_places(cache, before, counts, cache_leftpad, cache_batch_idx, table, picks):
    """Checks the places of keys, from lists that the host sees. table: (name, given tensor). picks: True if
    cache_batch_idx names its rows."""
    lengths = [cache.room] * cache.batch if before is None else (before + counts).tolist()
    arguments.check_lengths("cache_leftpad", cache_leftpad, lengths,
                            "the request's keys begin there, and end at cache_seqlens plus the new keys")
    if cache_batch_idx is None or not picks and cache_leftpad is None:  # the library itself checks slots
        return
    places, what = (table[1].shape[0], f"rows of {table[0]}") if picks else (cache.k.shape[0], "slots of the cache")
    for request, (place, length) in enumerate(zip(cache_batch_idx.tolist(), lengths)):
        if length and not 0 <= place < places:
            raise ValueError(
                f"cache_batch_idx[{request}] is {place} and request {request} has {length} keys; must be 0 to "
                f"{places - 1}, {what}")


def _check_room(cache, new, before, rotary_seqlens, rotary_cos, *of_places):
    """Checks FlashAttention's conditions on tables, and the values of lists that the host sees, before anything is
    written."""
    if rotary_cos is not None and rotary_cos.shape[0] < cache.room:
        raise ValueError(
            f"rotary_cos has shape {tuple(rotary_cos.shape)}; must have at least {cache.room} positions, the cache's "
            f"room")
    if not host_sees(cache.k):  # reading extents here would make them constants of a graph
        return
    counts = 0 if new is None else new.k.shape[1] if new.cu_seqlens is None else (new.cu_seqlens[1:] -
                                                                                  new.cu_seqlens[:-1])
    many = counts if isinstance(counts, int) else None
    come = "" if new is None else f", of which {'some' if many is None else many} are new"
    arguments.check_lengths("cache_seqlens", before, cache.room - counts,
                            f"the cache has room for {cache.room} keys of a request{come}")
    _check_places(cache, before, counts, *of_places)
    if rotary_cos is not None:
        arguments.check_lengths("rotary_seqlens", rotary_seqlens, rotary_cos.shape[0] - counts,
                                f"rotary_cos has {rotary_cos.shape[0]} positions{come}")


def _narrows(window, room):
    """True if a side of the window is below the cache's room. FlashAttention treats wider sides as open."""
    return any(side is not None and side < room for side in window or ())


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
                            cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None,
                            causal=False, window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None,
                            num_splits=0, return_softmax_lse=False, *, page_table=None, cu_seqlens_q=None,
                            max_seqlen_q=None, cu_seqlens_k_new=None, rotary_seqlens=None, q_descale=None,
                            k_descale=None, v_descale=None, attention_chunk=0, learnable_sink=None, s_aux=None,
                            out=None, qv=None, scheduler_metadata=None, pack_gqa=None, sm_margin=0, fa_version=None):
    """Returns attention over a cache with FlashAttention's signature, for arguments of its versions 2 and 3. Arguments
    of version 3 go by name. Takes PyTorch tensors. Has no gradients: a backward raises.

    q: [batch, seqlen_q, num_heads_q, head_dim]. k_cache, v_cache: [slots, seqlen_cache, num_heads_kv, head_dim], or
    with block_table (page_table: int32 [batch, pages]) pages [num_pages, page_size, num_heads_kv, head_dim] of any
    size.
    cache_seqlens: int32 [batch] or a number, the keys in the cache before this call. None: 0 if k is given, otherwise
    all.
    k, v: [batch, seqlen_new, num_heads_kv, head_dim], written into the cache after those keys.
    rotary_cos, rotary_sin: [positions, rotary_dim / 2], at least as many positions as the cache has room for. They
    rotate k, before it is written, and q. With causal, attention_chunk, or a window side below the cache's room, each
    row of q has its own position; otherwise all rows have the position of the first new key.
    cache_batch_idx: int32 [batch], the slot of each request. causal: the last row sees all keys.
    cache_leftpad: int32 [batch], without block_table: a request's keys begin there in its slot. cache_seqlens and
    angles count from the slot's begin.

    Version 3: with cu_seqlens_q (int32 [batch + 1]) and max_seqlen_q, q is [rows, num_heads_q, head_dim] end to end,
    and lse [num_heads_q, rows]. With cu_seqlens_k_new, k and v are [rows, num_heads_kv, head_dim].
    rotary_seqlens: int32 [batch], the position that angles count from instead of cache_seqlens.
    attention_chunk: keys of other chunks of this many positions are hidden. learnable_sink (s_aux): [num_heads_q],
    logits that are added to the denominator.
    k_descale, v_descale: float32 [batch, num_heads_kv], factors of 8-bit caches; None is 1. With block_table they must
    be expanded from [1, num_heads_kv]. Requests that share a slot must have the same factors, which is not checked on a
    GPU. With such a cache, k and v either have q's 16-bit dtype, and are divided by the factors and rounded; or they
    have the cache's dtype, and are written unchanged.
    8-bit q is computed in bf16, times q_descale.

    One launch of append_kv() writes and rotates, on the same stream. Rows without a place are not written. num_splits,
    scheduler_metadata, pack_gqa, sm_margin and fa_version are ignored.

    qv: [.., num_heads_q, head_dim_v], otherwise like q. Its products with v_cache, of one head, are added to the scores
    (absorbed latent attention), without factors and 8-bit q. If softmax_scale is None, scores are scaled by 1 /
    sqrt(head_dim + head_dim_v). k_cache and v_cache should be columns of one tensor, x[..., 512:] and x[..., :512];
    otherwise each call copies all keys that it reads, and warns.

    Returns out like q, with v_cache's head_dim; with return_softmax_lse (out, lse). A row without keys has lse -inf
    (FlashAttention: +inf). Raises ValueError or TypeError if arguments do not fit, and attune.Error if the library
    refuses the call."""
    import torch
    table_name = "block_table" if page_table is None else "page_table"
    check_tensors({"q": q, "k_cache": k_cache, "v_cache": v_cache}, k=k, v=v, rotary_cos=rotary_cos,
                  rotary_sin=rotary_sin, qv=qv, alibi_slopes=alibi_slopes, learnable_sink=learnable_sink, s_aux=s_aux,
                  out=out, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    attention_chunk = chunk_of(attention_chunk)
    block_table, sinks = arguments.one_of(block_table=block_table, page_table=page_table), arguments.one_of(
        learnable_sink=learnable_sink, s_aux=s_aux)
    causal, return_softmax_lse, rotary_interleaved = (flag(
        "causal", causal), flag("return_softmax_lse", return_softmax_lse), flag("rotary_interleaved",
                                                                                rotary_interleaved))
    arguments.ignore(_FUNCTION, num_splits=num_splits, pack_gqa=pack_gqa, sm_margin=sm_margin)
    refuse_gradients((("k_cache", k_cache), ("v_cache", v_cache)) if k is not None else ())
    _check_pairs(k, v, rotary_cos, rotary_sin, cu_seqlens_q, max_seqlen_q, cu_seqlens_k_new)
    batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    table = None if block_table is None else (table_name, block_table)
    _check_lists(q, k, batch, cache_batch_idx, cache_leftpad, table, cu_seqlens_q, max_seqlen_q, cu_seqlens_k_new,
                 rotary_seqlens)
    check_second_product(q, qv, k_cache, v_cache, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    slots, picks = cache_batch_idx, table is not None and cache_batch_idx is not None
    if picks:
        block_table, slots = _picked(block_table, cache_batch_idx), None
    cache = _Cache(k_cache, v_cache, block_table, slots,
                   k_cache.shape[1] * (1 if block_table is None else block_table.shape[1]), batch)
    new, lengths = None if k is None else _New(k, v, cu_seqlens_k_new), _lengths_of("cache_seqlens", cache_seqlens,
                                                                                    batch, q)
    before = torch.zeros(batch, dtype=torch.int32, device=q.device) if lengths is None and new is not None else lengths
    _check_room(cache, new, before, rotary_seqlens, rotary_cos, cache_leftpad, cache_batch_idx, table, picks)
    window = window_of(window_size)
    factors = arguments.scales_of(k_cache, arguments.spread_over_slots(k_cache, block_table, slots),
                                  k_descale=k_descale, v_descale=v_descale)
    # Without these, all rows are at the first new position.
    moves = bool(causal or attention_chunk or _narrows(window, cache.room) or
                 (cu_seqlens_q is None and q.shape[1] == 1))
    angles = None if rotary_cos is None else _Angles(rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens, moves)
    names = {**_NAMES, "page_table": table_name, "sinks": "learnable_sink" if s_aux is None else "s_aux"}

    def run():
        rows, keys, ends, scales = arguments.with_factors(q, q_descale, k_cache.shape[2],
                                                          cu_seqlens_q), cache, lengths, factors
        if new is not None:
            rows, ends = named({**names, "q_begins": "cu_seqlens_k_new"}, _append, rows, cu_seqlens_q, cache, new,
                               before, angles, scales)
        if cache_leftpad is not None:
            keys, ends, scales = _as_pages_of_a_key(cache, ends, cache_leftpad, scales)
        return named(
            names, attend_with, qv, rows, keys.k, keys.v, kv_lengths=ends, page_table=keys.block_table,
            slots=keys.slots, q_begins=cu_seqlens_q, seqlen_q=max_seqlen_q, is_causal=causal, window=window,
            scale=softmax_scale, return_lse=return_softmax_lse, softcap=off_or_number("softcap", softcap),
            alibi_slopes=alibi_slopes, sinks=sinks, out=out, mask_mod=arguments.program_of(attention_chunk), **scales)
    if out is not None:  # writing into it would lose its history
        return run()
    return forward_alone(run, _NO_BACKWARD, q, qv, k_cache, v_cache, k, v, rotary_cos, rotary_sin, alibi_slopes, sinks,
                         k_descale, v_descale)
