# SPDX-License-Identifier: Apache-2.0
"""FlashAttention's functions for sequences end to end. See flash/.

Without gradients, attention_kvcache() finds the sequences by their lists. With gradients or dropout, attention() tells
them apart as documents."""
import functools
import operator
from types import SimpleNamespace

from ..core.flags import flag
from ..core.preparing import copied
from ..core.torch_state import records_gradients
from ..score.scores import refuse_other_extents
from ..ops.attention import attention
from ..ops.kvcache import check_begins
from ..ops.padding import is_between, widened_arguments
from ..adapters.arguments import chunk_of, off_or_number, window_of
from ..adapters.errors import check_tensors, named
from ..adapters.lists import host_sees, is_recorded, requests_of_rows
from . import arguments
from .forward_alone import forward_alone
from .latent import attend_with, check_second_product

_FUNCTION = "flash_attn_varlen_func"
_NAMES = {
    "q_begins": "cu_seqlens_q", "kv_begins": "cu_seqlens_k", "kv_lengths": "seqused_k", "seqlen_q": "max_seqlen_q",
    "seqlen_kv": "max_seqlen_k", "k_cache": "k", "v_cache": "v", "scale": "softmax_scale", "is_causal": "causal",
    "k_scale": "k_descale", "v_scale": "v_descale", "chunk": "attention_chunk"}
_NO_BACKWARD = ("flash_attn_varlen_func() with {}, which has none; call it without gradients, or give q, k and v of "
                "bf16, fp16 or fp32 end to end")


def _finds_sequences(call):
    """True if the call goes to kernels that find sequences by their lists (_by_lists()). Fast kernels of this kind
    exist for Hopper. Only this kind knows positions if q and k have different lists."""
    import torch
    if call.k.dtype.itemsize == 1 or (call.q.is_cuda and torch.cuda.get_device_capability(call.q.device) == (9, 0)):
        return True
    if (_has_slopes_of_sequences(call) or call.chunk) and is_recorded(
            call.q):  # _by_documents() would need programs, which a graph cannot hold
        return True
    return not _is_one_list(call) and (_looks(call) or not call.q.is_cuda)


def _has_slopes_of_sequences(call):
    return call.slopes is not None and call.slopes.dim() == 2 and call.slopes.shape[0] > 1


def _looks(call):
    """True if the call depends on positions."""
    return bool(call.causal or call.window is not None or call.chunk or call.slopes is not None)


def _is_one_list(call):
    return call.cu_q is call.cu_k and call.used_q is call.used_k


def _lines_up(call):
    """True if each row has the same position in q and in k. With two lists this waits for the device."""
    import torch
    if _is_one_list(call):
        return True
    if is_recorded(call.cu_q):
        pair = "seqused_q and seqused_k" if call.cu_q is call.cu_k else "cu_seqlens_q and cu_seqlens_k"
        raise ValueError(
            f"{pair} are different tensors; inside a graph they must be the same tensor if gradients or dropout are "
            "combined with a mask, window or slopes")
    return call.used_q is None and call.used_k is None and torch.equal(call.cu_q, call.cu_k)


def _counts(cu_seqlens, used):
    return cu_seqlens[1:] - cu_seqlens[:-1] if used is None else used


def _check_lists(call):
    """Checks the lists that the host sees, because kernels trust them."""
    batch = call.cu_q.shape[0] - 1 if hasattr(call.cu_q, "shape") else 0
    for name, begins in (("cu_seqlens_q", call.cu_q), ("cu_seqlens_k", call.cu_k)):
        if begins is None:
            continue
        if not hasattr(begins, "dim") or begins.dim() != 1 or begins.shape[0] != batch + 1 or begins.is_floating_point(
        ) or begins.device != call.q.device:
            raise ValueError(
                f"{name} is {begins!r}; must be an int32 tensor [batch + 1] on {call.q.device}, q's device, that holds "
                f"the first row of each sequence and then the end of the last sequence")
    for name, used in (("seqused_q", call.used_q), ("seqused_k", call.used_k)):
        if used is not None:
            arguments.check_list(name, used, (batch,), "[batch]", call.q)
    if call.table is not None:
        columns = call.table.shape[1] if getattr(call.table, "ndim", 0) == 2 else 1
        arguments.check_list(call.names["page_table"], call.table, (batch, columns), "[batch, pages]", call.q)
    if not host_sees(call.cu_q):
        return
    check_begins("cu_seqlens_q", call.cu_q, "rows", call.q.shape[0], "max_seqlen_q", call.most_q)
    arguments.check_lengths("seqused_q", call.used_q, (call.cu_q[1:] - call.cu_q[:-1]).tolist(), "rows of the sequence")
    if call.table is None:
        check_begins("cu_seqlens_k", call.cu_k, "keys", call.k.shape[0], "max_seqlen_k", call.most_k)
        arguments.check_lengths("seqused_k", call.used_k, (call.cu_k[1:] - call.cu_k[:-1]).tolist(),
                                "keys of the sequence")
    else:
        room = call.table.shape[1] * call.k.shape[1]
        arguments.check_lengths("seqused_k" if call.cu_k is None or call.used_k is not None else "keys of cu_seqlens_k",
                                _counts(call.cu_k, call.used_k), room,
                                f"{call.names['page_table']} has room for as many keys")


def _end_to_end(name, x, cu_seqlens, most):
    """Returns rows of all sequences end to end, the begins of sequences, and the length of the longest. x may also be
    [batch, seqlen, ..], as in version 4."""
    import torch
    if cu_seqlens is not None:
        return x, cu_seqlens, arguments.check_longest(f"max_seqlen_{name}", most, x.shape[0])
    if x.dim() != 4:
        raise ValueError(
            f"cu_seqlens_{name} is None and {name} has shape {tuple(x.shape)}; without cu_seqlens_{name} it must be "
            f"[batch, seqlen, num_heads, head_dim]")
    begins = torch.arange(x.shape[0] + 1, dtype=torch.int32, device=x.device) * x.shape[1]
    return x.flatten(0, 1), begins, x.shape[1]


def _moved_up(call):
    """Returns the places of the rows of q that seqused_q keeps, their begins, and for each row of q its row in the
    result (-1: none)."""
    import torch
    count = call.q.shape[0]
    begins = torch.nn.functional.pad(call.used_q.cumsum(0), (1, 0)).int()
    last = call.used_q.shape[0] - 1

    def moved(of, to, steps=None):
        row = torch.arange(count, device=call.q.device)
        requests = requests_of_rows(of, count)
        inside = requests.clamp(0, max(last, 0))
        at = row - of.long()[inside]
        known = (requests >= 0) & (requests <= last) & (True if steps is None else at < steps.long()[inside])
        return torch.where(known, to.long()[inside] + at, -1)
    return moved(begins, call.cu_q).clamp(min=0), begins, moved(call.cu_q, begins, call.used_q)


def _wider(call, given):
    """Returns packed q, k and v of head dims that kernels take. Others are copied, with the warning of attention()."""
    q, k, v = call.q, call.k, call.v
    if not is_between(q[None], k[None], v[None]):
        return q, k, v
    wide = widened_arguments({
        "q": q[None], "k": k[None], "v": v[None], "out": None, "pad_head_dim": None, "scale": given["scale"]})
    given["scale"] = wide["scale"]
    return tuple(wide[name][0] for name in "qkv")


def _program_of_positions(call, lengths):
    """Returns call.score_mod for attention_kvcache(), whose q_idx counts positions from the first key, while
    call.score_mod's q_idx counts rows of the sequence."""
    mod, ahead = call.score_mod, lengths - _counts(call.cu_q, call.used_q)
    return lambda score, b, h, q_idx, kv_idx: mod(score, b, h, q_idx - ahead[b], kv_idx)


def _by_lists(call):
    """Returns (out, lse), computed by kernels that read the lists."""
    import torch
    lengths = _counts(call.cu_k, call.used_k).int()
    given = dict(call.choices, alibi_slopes=call.slopes, window=arguments.seen_by_kernels(call.window),
                 is_causal=call.causal, sinks=call.sinks, mask_mod=arguments.program_of(call.chunk, call.window))
    if call.score_mod is not None:
        arguments.refuse_program("score_mod of sequences end to end")
        given["score_mod"] = _program_of_positions(call, lengths)
    q, k, v = _wider(call, given) if call.table is None and call.qv is None else (call.q, call.k, call.v)
    qv, spread = call.qv, None
    if call.table is not None:
        given.update(kv_lengths=lengths, page_table=call.table)
    else:
        given.update(kv_begins=call.cu_k.int(), seqlen_kv=min(call.most_k, k.shape[0]),
                     kv_lengths=None if call.used_k is None else lengths)
        spread = lambda descale: descale[requests_of_rows(call.cu_k, k.shape[0]).clamp(
            0, descale.shape[0] - 1)]  # noqa: E731
    begins, back = call.cu_q.int(), None
    if call.used_q is not None:
        kept, begins, back = _moved_up(call)
        q, qv = q[kept], None if qv is None else qv[kept]
    q = arguments.with_factors(q, call.q_descale, k.shape[-2], begins)
    own = call.out if back is None and v.shape[-1] == call.v.shape[-1] else None
    out, lse = attend_with(
        qv, q, k, v, q_begins=begins, seqlen_q=min(call.most_q, q.shape[0]), return_lse=True, out=own,
        **arguments.scales_of(k, spread, k_descale=call.k_descale, v_descale=call.v_descale), **given)
    if back is not None:
        row, known = back.clamp(min=0), back >= 0
        out, lse = torch.where(known[:, None, None], out[row], 0), torch.where(known, lse[:, row], -float("inf"))
    return out if out.shape[-1] == call.v.shape[-1] else out[..., :call.v.shape[-1]], lse


def _documents(cu_seqlens, used, first, rows, of_none, needs_steps):
    """Returns (ids, steps), int32: the sequence of each row from `first` on, and the row's index in that sequence (None
    if not needed). Rows before the first sequence get id -1, rows after the last get batch, and rows that `used` leaves
    out get `of_none`."""
    import torch
    ids = requests_of_rows(cu_seqlens, rows, first)
    if used is None and not needs_steps:
        return ids.int(), None
    inside = ids.clamp(0, max(cu_seqlens.shape[0] - 2, 0))
    steps = torch.arange(first, first + rows, device=ids.device) - cu_seqlens.long()[inside]
    if used is not None:
        ids = torch.where(steps < used.long()[inside], ids, of_none)
    return ids.int(), steps.int()


def _mask_of_positions(call, rows, keys):
    """Returns attention()'s mask_mod for int32 positions of rows and keys in their own sequences."""
    left, right = call.window or (None, None)
    if call.causal:
        right = 0
    chunk = call.chunk

    def seen(b, h, q_idx, kv_idx):
        row, key = rows[q_idx], keys[kv_idx]
        conditions = [] if right is None else [key <= row + right]
        if left is not None:
            conditions.append(key >= row - left)
        if chunk:
            conditions.append(row // chunk == key // chunk)
        return functools.reduce(operator.and_, conditions)
    return seen


def _score_of_sequences(call, ids, steps, rows, keys):
    """Returns attention()'s score_mod for programs and slopes that count per sequence. steps: rows counted from a
    sequence's first; rows, keys: positions."""
    mod, slopes = call.score_mod, call.slopes

    def score_of(score, b, h, q_idx, kv_idx):
        if mod is not None:
            score = mod(score, ids[q_idx], h, steps[q_idx], keys[kv_idx])
        return score if slopes is None else score - slopes[ids[q_idx], h] * abs(rows[q_idx] - keys[kv_idx])
    return score_of


def _cut(call, lines_up):
    """Returns (first, end) of the rows, and of the keys, that belong to sequences, if the host sees the lists;
    otherwise all."""
    found = [(int(begins[0]), int(begins[-1])) if host_sees(begins) else (0, x.shape[0])
             for begins, x in ((call.cu_q, call.q), (call.cu_k, call.k))]
    if lines_up:  # rows after the last sequence would move the diagonal
        end = min(end for _, end in found)
        found = [(first, end) for first, _ in found]
    return found


def _seeing_nothing(call):
    """Returns the call for sequences without rows or without keys, where positions do not matter. Slopes stay, to get
    gradients of 0."""
    slopes = None if call.slopes is None or call.slopes.numel() == 0 else call.slopes.reshape(-1)[:1]
    return SimpleNamespace(
        **{**vars(call), "causal": False, "window": None, "chunk": 0, "score_mod": None, "slopes": slopes})


def as_documents(call):
    """Returns the call in attention()'s form: the slice of rows, the slice of keys, and attention()'s keywords."""
    lines_up = _looks(call) and _lines_up(call)
    (first, end), (first_key, end_key) = _cut(call, lines_up)
    if first == end or first_key == end_key:
        call, lines_up = _seeing_nothing(call), True
    by_sequence = _has_slopes_of_sequences(call) or (call.slopes is not None and not lines_up)
    needs_steps = call.chunk or call.score_mod is not None or by_sequence or (_looks(call) and not lines_up)
    ids, steps = _documents(call.cu_q, call.used_q, first, end - first, -2, needs_steps)
    is_one = _is_one_list(call) and call.used_q is None and (first, end) == (first_key, end_key)
    key_ids, keys = (ids, steps) if is_one else _documents(call.cu_k, call.used_k, first_key, end_key -
                                                           first_key, -3, needs_steps)
    given = dict(call.choices, sinks=call.sinks, documents=(ids[None], key_ids[None]))
    rows = steps
    if not lines_up and _looks(call):
        ahead = (_counts(call.cu_k, call.used_k) - _counts(call.cu_q, call.used_q)).long()
        rows = (steps + ahead[ids.long().clamp(0, max(ahead.shape[0] - 1, 0))]).int()
    if lines_up and not call.chunk:
        given.update(mask="causal_bottom_right" if call.causal else None, window=arguments.seen_by_kernels(call.window),
                     mask_mod=arguments.program_of(window=call.window))
    elif call.causal or call.window is not None or call.chunk:
        arguments.refuse_program("a mask or window over unlike lists, and attention_chunk with gradients,")
        given["mask_mod"] = _mask_of_positions(call, rows, keys)
    if call.score_mod is not None or by_sequence:
        arguments.refuse_program("score_mod of sequences end to end" if call.
                                 score_mod is not None else "alibi_slopes of each sequence, with gradients,")
        own = SimpleNamespace(
            score_mod=call.score_mod,
            slopes=call.slopes.expand(call.cu_q.shape[0] - 1, call.q.shape[1]) if by_sequence else None)
        given["score_mod"] = _score_of_sequences(own, ids, steps, rows, keys)
    if not by_sequence:
        given["alibi_slopes"] = call.slopes
    for name, value in (("dropout_p", call.dropout_p or None), ("deterministic", True if call.deterministic else None)):
        if value is not None:
            given[name] = value
    return slice(first, end), slice(first_key, end_key), given


def _by_documents(call):
    """Returns (out, lse) from attention(), with gradients for PyTorch."""
    import torch
    rows, keys, given = as_documents(call)
    out, lse = attention(call.q[None, rows], call.k[None, keys], call.v[None, keys], return_lse=True, **given)
    out, lse = out[0], lse[0]
    if rows.stop - rows.start != call.q.shape[0]:
        behind = call.q.shape[0] - rows.stop
        out, lse = (torch.nn.functional.pad(out, (0, 0, 0, 0, rows.start, behind)),
                    torch.nn.functional.pad(lse, (rows.start, behind), value=-float("inf")))
    return out, lse


def _attend(call):
    """Returns (out, lse) of _by_lists() or of _by_documents()."""
    operands = call.q, call.k, call.v, call.slopes, call.sinks, call.qv, call.k_descale, call.v_descale, call.q_descale
    recorded, narrow = records_gradients(*operands), call.k.dtype.itemsize == 1
    alone = [
        name
        for name, given in ((call.names["page_table"], call.table is not None), (call.names["qv"], call.qv is not None))
        if given]
    if alone and call.dropout_p:
        raise ValueError(f"dropout_p is {call.dropout_p}; must be 0.0 with {alone[0]}")
    if recorded and not call.dropout_p and (alone or narrow):
        call.out = None  # writing into it would lose its history
        return forward_alone(lambda: named(call.names, _by_lists, call),
                             _NO_BACKWARD.format(alone[0] if alone else "8-bit tensors"), *operands)
    by_lists = alone or not (recorded or call.dropout_p) and _finds_sequences(call)
    return named(call.names, _by_lists if by_lists else _by_documents, call)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
                           dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                           alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None, *,
                           page_table=None, seqused_q=None, seqused_k=None, learnable_sink=None, s_aux=None,
                           attention_chunk=0, score_mod=None, q_descale=None, k_descale=None, v_descale=None, out=None,
                           return_lse=False, return_softmax_lse=False, qv=None, q_v=None, aux_tensors=None,
                           num_splits=0, pack_gqa=None, sm_margin=0, scheduler_metadata=None, fa_version=None):
    """Returns attention of sequences end to end with FlashAttention's signature, for arguments of its versions 2, 3 and
    4 and of vLLM. Arguments that version 2 lacks go by name. Takes PyTorch tensors. Gradients: of q, k, v, alibi_slopes
    and learnable_sink, without block_table.

    q: [rows, num_heads_q, head_dim], k, v: [keys, num_heads_kv, head_dim]. cu_seqlens_q, cu_seqlens_k: int32 [batch +
    1], the begin of each sequence and the end of the last. If one is None, q (or k and v) is [batch, seqlen, num_heads,
    head_dim], and out likewise.
    A row sees keys of its own sequence. Its last row is at its last key (bottom right).
    seqused_q, seqused_k: int32 [batch], the number of rows and keys of each sequence that count. Other rows of out are
    0. With gradients or dropout, and with one list for both elsewhere than on Hopper GPUs, keys of other sequences
    weigh 0 and must be finite.
    Rows before the first sequence and after the last belong to no sequence; their out and lse are undefined.
    With block_table (page_table: int32 [batch, pages]) k and v are pages [num_pages, page_size, num_heads_kv,
    head_dim]. seqused_k, or else cu_seqlens_k, gives the number of keys of each sequence.

    With gradients or dropout, and a mask, window, chunk or slopes: one tensor for both lists needs no wait. Two tensors
    are compared, which waits for the device; if they differ, positions are looked up.
    max_seqlen_q, max_seqlen_k: the length of the longest sequence, or more; None fits any batch. On a CPU, lists that
    decrease or exceed the rows of q or k, and a max_seqlen below a sequence's length, are refused. On a GPU they are
    not checked.
    dropout_p: over rows end to end, without block_table. attention_chunk, learnable_sink (s_aux): as in
    flash_attn_with_kvcache().
    score_mod: a function, as in attention(), for each sequence by itself; b is the sequence's number.
    q_descale, k_descale, v_descale: as in flash_attn_with_kvcache(); without gradients. out: the tensor that the result
    is written into.
    qv (q_v): as in flash_attn_with_kvcache(), [rows, num_heads_q, head_dim_v]. deterministic: for gradients, as in
    flash_attn_func().
    num_splits, pack_gqa, sm_margin, scheduler_metadata and fa_version are ignored.

    Returns out. With return_lse or return_softmax_lse returns (out, lse); lse is [num_heads_q, rows], or [batch,
    num_heads_q, seqlen] if q has a batch axis. With return_attn_probs returns a third, as flash_attn_func() does.
    Raises ValueError for aux_tensors."""
    arguments.refuse(arguments.refusals(aux_tensors=aux_tensors))
    causal, deterministic, return_attn_probs = flag("causal", causal), flag("deterministic", deterministic), flag(
        "return_attn_probs", return_attn_probs)
    return_lse = flag("return_lse", return_lse) or flag("return_softmax_lse", return_softmax_lse)
    dropout_p = off_or_number("dropout_p", dropout_p) or 0.0
    check_tensors({"q": q, "k": k, "v": v}, qv=qv, q_v=q_v, alibi_slopes=alibi_slopes, out=out,
                  learnable_sink=learnable_sink, s_aux=s_aux, q_descale=q_descale, k_descale=k_descale,
                  v_descale=v_descale)
    second = arguments.one_of(qv=qv, q_v=q_v)
    check_second_product(q, second, k, v, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    arguments.ignore(_FUNCTION, num_splits=num_splits, pack_gqa=pack_gqa, sm_margin=sm_margin)
    given, table = (q, out), arguments.one_of(block_table=block_table, page_table=page_table)
    names = {
        **_NAMES, "page_table": "block_table" if page_table is None else "page_table",
        "sinks": "learnable_sink" if s_aux is None else "s_aux", "qv": "qv" if q_v is None else "q_v"}
    if score_mod is not None and (not callable(score_mod) or hasattr(score_mod, "bind")):
        raise TypeError(f"score_mod is {type(score_mod).__name__}; must be a function (score, b, h, q_idx, kv_idx)")
    q, cu_seqlens_q, most_q = _end_to_end("q", q, cu_seqlens_q, max_seqlen_q)
    if table is None:
        (k, cu_seqlens_k, most_k), v = _end_to_end("k", k, cu_seqlens_k,
                                                   max_seqlen_k), v if v.dim() == 3 else v.flatten(0, 1)
    elif cu_seqlens_k is None and seqused_k is None:
        raise ValueError(
            f"{names['page_table']} is given without seqused_k and cu_seqlens_k; give one of them, from which the "
            f"number of keys of each request follows")
    else:
        most_k = 0
    window, sinks = window_of(window_size), arguments.one_of(learnable_sink=learnable_sink, s_aux=s_aux)
    call = SimpleNamespace(
        q=q, k=k, v=v, cu_q=cu_seqlens_q, cu_k=cu_seqlens_k, used_q=seqused_q, used_k=seqused_k, most_q=most_q,
        most_k=most_k, table=table, causal=causal, window=window, chunk=chunk_of(attention_chunk), slopes=alibi_slopes,
        sinks=sinks, score_mod=score_mod, dropout_p=dropout_p, deterministic=deterministic,
        qv=None if second is None else second.flatten(0, -3), names=names, q_descale=q_descale, k_descale=k_descale,
        v_descale=v_descale, out=out if out is None or out.dim() == 3 else out.flatten(0, 1), choices=dict(
            scale=softmax_scale, softcap=off_or_number("softcap", softcap)))
    _check_lists(call)
    if alibi_slopes is not None:  # checked here: not all kernels below know a batch
        refuse_other_extents("alibi_slopes", tuple(alibi_slopes.shape), ("batch", "num_heads_q"),
                             (cu_seqlens_q.shape[0] - 1, q.shape[1]))
    return _shown(*_attend(call), *given, (return_attn_probs, return_lse), dropout_p)


def _shown(found, lse, q, out, wanted, dropout_p):
    """Returns the call's result: with q's batch axis if it has one, and in `out` if that is given."""
    if q.dim() == 4:
        found, lse = found.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1)
    if out is not None:
        found = out if out.data_ptr() == found.data_ptr() else copied(out, found)
    wants_probabilities, wants_lse = wanted
    if wants_probabilities:
        return found, lse, arguments.no_probabilities(q, dropout_p)
    return (found, lse) if wants_lse else found


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False,
                                     window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
                                     return_attn_probs=False):
    """Calls flash_attn_varlen_func() for qkv [rows, 3, num_heads, head_dim], without copies."""
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale,
                                  causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                                    softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """Calls flash_attn_varlen_func() for kv [keys, 2, num_heads_kv, head_dim], without copies."""
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p,
                                  softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                                  return_attn_probs)
