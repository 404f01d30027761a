# SPDX-License-Identifier: Apache-2.0
"""append_kv(): writes rows of k and v into the cache that attention_kvcache() reads. Calls with equal shapes, strides
and choices share one plan."""
from ..core import tensors
from ..core.flags import flag
from ..core.operands import extent_of, steps_of
from ..core.problem import whole, whole_or_none
from ..core.torch_state import needs_op, refuse_gradients, tell_written
from . import quick
from .cache_factors import are_by_key, bind_factors, bind_groups, codes_of, columns_of_factor, refuse_beside_wide
from .cache_padding import append_wide, is_between, readable_table
from .call import Call, Operand, kept_call, key_of
from .context import context_of
from .kvcache import _PAGES, _SLOTS, _batch_of, _dtypes, check_lists_of, give_lists, rounded, stride_of
from .public import OF_CACHES, public

_ROWS, _PACKED_ROWS = "[batch, seqlen, num_heads, head_dim]", "[rows of all requests, num_heads, head_dim]"
_MOST_PAGE_ROWS = 65536  # a problem's limit

_OF_ROWS = ("k", "v", "q", "q_out")
_OPERANDS = (
    Operand("k", "k", "append"), Operand("v", "v", "append"), Operand("q", "q"), Operand("cos", "cos", "append"),
    Operand("sin", "sin", "append"), Operand("positions", "positions", "append"),
    Operand("row_slots", "row_slots", "append"), Operand("k_cache", "k", written=True),
    Operand("v_cache", "v", written=True), Operand("q_out", "o", written=True, over="q"))


def _check_index(name, tensor, shape):
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; must be {shape}, an integer per row of k")
    found = str(tensor.dtype).rpartition(".")[2]
    if found not in ("int32", "int64"):
        raise ValueError(f"{name} is {found}; must be int32 or int64")
    wanted, strides = 1, tensors.element_strides(name, tensor)
    for extent, stride in zip(reversed(shape), reversed(tuple(strides))):
        if extent > 1 and stride != wanted:
            raise ValueError(f"{name} has strides {tuple(strides)}; must be contiguous (copy the tensor)")
        wanted *= extent
    return 8 if found == "int64" else 4


def _check_indices(given, k):
    """Returns the bytes of one element of positions and row_slots, which must have one dtype."""
    found = {
        name: _check_index(name, given[name], tuple(k.shape[:-2]))
        for name in ("positions", "row_slots") if given[name] is not None}
    if len(set(found.values())) > 1:
        raise ValueError("positions and row_slots differ in type; both must be int32 or both int64")
    return next(iter(found.values()), 4)


def _table_text(given):
    """Returns the fields of the rotation for a problem's text."""
    cos, sin, q = given["cos"], given["sin"], given["q"]
    if (cos is None) != (sin is None):
        raise ValueError("one of cos and sin is given; give both or neither")
    if cos is None:
        if q is not None:
            raise ValueError("q is given without cos and sin; give all three, or none of them")
        if given["interleaved"]:
            raise ValueError("interleaved is True without cos and sin; give cos and sin, whose pairs it describes")
        return ""
    for name, table in (("cos", cos), ("sin", sin)):
        tensors.check_rank(name, table, "[positions, rotary_dim / 2]")
        if tuple(table.shape) != tuple(cos.shape) or tensors.dtype_text(table.dtype) != tensors.dtype_text(cos.dtype):
            raise ValueError(
                f"{name} is {tensors.dtype_text(table.dtype)} of shape {tuple(table.shape)} and cos "
                f"{tensors.dtype_text(cos.dtype)} of {tuple(cos.shape)}; both must have the same dtype and shape")
        if tensors.dtype_text(table.dtype) not in ("fp32", "bf16", "fp16"):
            raise ValueError(f"{name} is {tensors.dtype_text(table.dtype)}; must be fp32, bf16 or fp16")
    if not 1 <= cos.shape[1] <= given["k"].shape[-1] // 2:
        raise ValueError(
            f"cos has shape {tuple(cos.shape)}; must have 1 to {given['k'].shape[-1] // 2} columns, half of k's "
            f"rotated columns")
    return (f",rotary={tensors.dtype_text(cos.dtype)},rotary_dim={2 * cos.shape[1]}" +
            (",rotary_interleaved=1" if given["interleaved"] else "") + ("" if q is None else ",rotary_q=1"))


def _check_rows(given):
    k, v, q = given["k"], given["v"], given["q"]
    dimensions = _ROWS if len(k.shape) == 4 else _PACKED_ROWS
    for name, tensor in (("k", k), ("v", v), ("q", q), ("q_out", given["q_out"])):
        if tensor is None:
            continue
        tensors.check_rank(name, tensor, dimensions)
        if tuple(tensor.shape[:-2]) != tuple(k.shape[:-2]):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)} and k {tuple(k.shape)}; must have as many rows")
    if tuple(v.shape[:-1]) != tuple(k.shape[:-1]):
        raise ValueError(f"v has shape {tuple(v.shape)} and k {tuple(k.shape)}; only head_dim may differ")
    if q is not None and q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}; both must have the same head_dim")


def _problem(given, lists, seqlen_q, dtype_kv, kv_factors):
    """Returns the problem's text."""
    k, v, k_cache, v_cache, q = (given[name] for name in ("k", "v", "k_cache", "v_cache", "q"))
    _check_rows(given)
    by_place, packed = given["row_slots"] is not None, len(k.shape) == 3
    if packed and lists["q_begins"] is None and not by_place:
        raise ValueError(
            f"k has shape {tuple(k.shape)}; must be {_ROWS}, or {_PACKED_ROWS} with q_begins and seqlen_q, or with "
            f"row_slots")
    if by_place and packed and lists["q_begins"] is None and given["positions"] is None and given["cos"] is not None:
        raise ValueError(
            "row_slots is given with cos and sin, without positions and q_begins; give positions or q_begins, from "
            "which the position of each row follows")
    if by_place and given["cos"] is not None and given["positions"] is None and lists["kv_lengths"] is None:
        raise ValueError(
            "row_slots is given with cos and sin, without positions and kv_lengths; give positions or kv_lengths, "
            "from which the position of each row follows")
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        tensors.check_rank(name, tensor, _PAGES if by_place or lists["page_table"] is not None else _SLOTS)
    if tuple(v_cache.shape[:3]) != tuple(k_cache.shape[:3]) or k_cache.shape[2] != k.shape[-2]:
        raise ValueError(
            f"k_cache has shape {tuple(k_cache.shape)}, v_cache {tuple(v_cache.shape)} and k {tuple(k.shape)}; all "
            "must have the same number of heads, and the caches may differ only in head_dim")
    codes = codes_of(kv_factors)
    dtypes = _dtypes(k, k_cache, v_cache, dtype_kv, codes, "k")
    for name, rows, cache in (("k", k, k_cache), ("v", v, v_cache)) if codes > 1 else ():
        if codes * cache.shape[-1] != rows.shape[-1]:
            raise ValueError(
                f"{name}_cache has shape {tuple(cache.shape)} and {name} {tuple(rows.shape)}; rows of 4-bit codes must "
                f"have {rows.shape[-1] // codes} bytes")
    if not packed:
        batch, rows = k.shape[:2]
    elif lists["q_begins"] is None:
        batch, rows = 1, rounded(k.shape[0])
    else:
        batch, rows = _batch_of(k, lists), rounded(seqlen_q)
    if lists["q_begins"] is None and not (packed and by_place):
        _batch_of(k, lists)
    keys = k_cache.shape[1]
    has_pages = lists["page_table"] is not None or (by_place and keys <= _MOST_PAGE_ROWS)
    longest = lists["page_table"].shape[1] * keys if lists["page_table"] is not None else keys
    heads_kv = k.shape[-2]
    heads = heads_kv if q is None else q.shape[-2]
    text = (
        f"op=append_kv,{dtypes},head_dim_qk={k.shape[-1]},head_dim_v={v.shape[-1]},heads={heads}/{heads_kv},"
        f"batch={batch},seqlen_q={rows},seqlen_kv={longest}")
    if k_cache.shape[0]:
        text += f",num_pages={k_cache.shape[0]}"
    elif batch and longest:
        raise ValueError("k_cache has no pages or slots; must be at least 1")
    text += "" if kv_factors == "heads" else f",kv_factors={kv_factors}"
    return text + (f",page_size={keys}" if has_pages else "") + (",packed_q=1" if packed else "") + _table_text(given)


def _make_call(context, given, lists, seqlen_q, dtype_kv, kv_factors):
    k, packed = given["k"], len(given["k"].shape) == 3
    check_lists_of("append_kv", {name: x for name, x in given.items() if name != "interleaved"}, lists, "k")
    text = _problem(given, lists, seqlen_q, dtype_kv, kv_factors)
    index_bytes = _check_indices(given, k)
    plan = context.plan_with_strides(text, None)  # kernels take all strides
    dtype, dtype_kv = (tensors.DTYPES[code] for code in (plan.problem.dtype, plan.problem.dtype_kv))
    extents, steps = {}, {}
    for name in (*_OF_ROWS, "k_cache", "v_cache"):
        if given[name] is not None:
            seen = given[name][None] if packed and name in _OF_ROWS else given[name]
            extents[name] = extent_of(name, seen, tuple(seen.shape), dtype if name in _OF_ROWS else dtype_kv,
                                      plan.target, k)
            steps[name] = steps_of(extents[name])
    for name in ("cos", "sin"):
        if given[name] is not None:
            row = tensors.element_strides(name, given[name])[0]
            extents[name], steps[name] = None, (row * given[name].shape[0], row, row)
    extents.update({name: None for name in ("positions", "row_slots") if given[name] is not None})
    call = Call(plan, _OPERANDS, extents, steps, stride=stride_of(lists["page_table"]),
                rows=tensors.size_of(k.shape[:-2]))
    call.part.index_bytes, call.part.num_rows = index_bytes, call.rows
    call.part.num_positions = 0 if given["cos"] is None else given["cos"].shape[0]
    return call


def _call_of(context, given, lists, seqlen_q, dtype_kv, kv_factors):
    named_dtype = None if dtype_kv is None else tensors.dtype_text(dtype_kv)
    key = ("append_kv", seqlen_q, named_dtype, kv_factors, given["interleaved"],
           *key_of({name: x for name, x in given.items() if name != "interleaved"}), *key_of(lists))
    context = context_of(context, tensors.check_device("k", given["k"]))
    return kept_call(context, key, lambda: _make_call(context, given, lists, seqlen_q, dtype_kv, kv_factors))


_TAKEN = ("k", "v", "k_cache", "v_cache", "kv_lengths", "page_table", "slots", "q_begins", "seqlen_q", "row_slots",
          "positions", "cos", "sin", "interleaved", "q", "q_out")


def _taken(k, v, k_cache, v_cache, kv_lengths, page_table, slots, q_begins, seqlen_q, row_slots, positions, cos, sin,
           interleaved, q, q_out):
    given = dict(k=k, v=v, k_cache=k_cache, v_cache=v_cache, row_slots=row_slots, positions=positions,
                 cos=readable_table("cos", cos), sin=readable_table("sin", sin), interleaved=flag(
                     "interleaved", interleaved), q=q, q_out=q_out)
    lists = dict(kv_lengths=kv_lengths, q_begins=q_begins, page_table=page_table, slots=slots, kv_begins=None)
    for name, tensor in (*given.items(), *lists.items()):
        if name != "interleaved" and (tensor is not None or name in ("k", "v", "k_cache", "v_cache")):
            tensors.signature(name, tensor)  # refuses other types
    if (q_begins is None) != (seqlen_q is None):
        raise ValueError(
            f"{'q_begins' if seqlen_q is None else 'seqlen_q'} is given alone; give q_begins and seqlen_q, or neither "
            f"(seqlen_q is the most rows of a request, which only the caller knows)")
    if seqlen_q is not None and whole("seqlen_q", seqlen_q) < 0:
        raise ValueError(f"seqlen_q is {seqlen_q}; must be at least 0")
    places = [
        name for name, tensor in (("page_table", page_table), ("slots", slots), ("row_slots", row_slots))
        if tensor is not None]
    if len(places) > 1:
        raise ValueError(f"{' and '.join(places)} are given; give at most one")
    if q is None and q_out is not None:
        raise ValueError("q_out is given without q; give q too, or leave out q_out")
    if q is not None and q_out is None:
        given["q_out"] = tensors.empty(q, tuple(q.shape), q.dtype)
    return given, lists


def kind_of_factors(scales, make_scales, columns=None):
    """Returns the problem's kv_factors: "heads", "keys", or "made" if the call makes the factors. columns: those of
    factors of groups of columns."""
    if columns is not None:
        if flag("make_scales", make_scales):
            raise ValueError("make_scales is True with k_factors and v_factors; must be False: the call always makes "
                             "these, and k_scale and v_scale are read")
        return columns
    if not flag("make_scales", make_scales):
        return "keys" if are_by_key(scales) else "heads"
    for name, scale in scales.items():
        if len(getattr(scale, "shape", ())) != 3:
            raise ValueError(
                f"{name} has shape {tuple(getattr(scale, 'shape', ()))} and make_scales is True; must be a float32 "
                "tensor [num_pages, page_size, num_heads_kv] (or of slots), which the call writes")
    return "made"


def _computed(arguments):
    """Returns append_kv()'s result for all of its arguments by name, and the recipe by which the C module can repeat
    the call (see quick.py), or None."""
    k, v, k_cache, v_cache, cos, sin = (arguments[name] for name in ("k", "v", "k_cache", "v_cache", "cos", "sin"))
    graph = needs_op(k, v, k_cache, v_cache, autocast=False, named=("k", "v", "k_cache", "v_cache"))
    if graph is not None:
        return graph.append(**arguments), None
    refuse_gradients(
        (name, arguments[name])
        for name in ("k", "v", "k_cache", "v_cache", "q", "cos", "sin", "q_out", "k_scale", "v_scale"))
    if is_between(k, k_cache, v_cache) and v.shape[-1] == v_cache.shape[-1]:
        return append_wide(append_kv, arguments), None
    given, lists = _taken(**{name: arguments[name] for name in _TAKEN})
    factors, make_scales = {name: arguments[name] for name in ("k_scale", "v_scale")}, arguments["make_scales"]
    refuse_beside_wide(factors, k_cache)
    groups = {name: arguments[name] for name in ("k_factors", "v_factors")}
    seqlen_q = whole_or_none("seqlen_q", arguments["seqlen_q"])
    call = _call_of(arguments["context"], given, lists, seqlen_q, arguments["dtype_kv"],
                    kind_of_factors(factors, make_scales, columns_of_factor(groups, k)))
    operands, _ = call.bind(given)
    cache = give_lists(operands, lists, call.stride)
    bind_groups(call, cache, k, groups, given, True)
    scales = bind_factors(
        call, operands, k, factors, given, {"k_cache": operands.k.data, "v_cache": operands.v.data}, others={
            name: tensors.address(name, given[name])
            for name in ("k", "v", "q", "q_out") if make_scales and given[name] is not None})
    stream = call.run(operands) if call.rows else None
    if make_scales:
        tell_written(*factors.values())
    tell_written(*(tensor for tensor in groups.values() if tensor is not None))
    kept = (operands, cache, scales)
    if not call.rows or call.plan.problem.kv_factors or given["cos"] is not cos or given["sin"] is not sin:
        return given["q_out"], None
    return given["q_out"], lambda: quick.recipe_of_append(call, operands, arguments, kept, stream)


@public("append", OF_CACHES, written="k_cache, v_cache, result")
def append_kv(k, v, k_cache, v_cache, kv_lengths=None, *, page_table=None, slots=None, q_begins=None, seqlen_q=None,
              row_slots=None, positions=None, cos=None, sin=None, interleaved=False, q=None, q_out=None, k_scale=None,
              v_scale=None, make_scales=False, dtype_kv=None, context=None, k_factors=None, v_factors=None):
    """Writes rows of k and v into the cache of attention_kvcache(). With cos and sin it first rotates k and q (rotary
    embedding). Both steps are one launch.

    k, v: [batch, seqlen, num_heads_kv, head_dim], the new tokens of each request. With q_begins (int32 [batch + 1]):
    [rows, num_heads_kv, head_dim], the rows of all requests end to end, at most `seqlen_q` per request. bf16, fp16 or
    fp32.
    k_cache, v_cache, page_table, slots: as in attention_kvcache().
    kv_lengths: int32 [batch], keys of each request including these new ones. Row i of `rows` new ones has position
    kv_lengths - rows + i. None: the cache's room.
    row_slots: the place of each row in the cache, page * page_size + index in the page, instead of page_table and
    slots. A row with -1 is not written.
    positions: the position of each row, instead of kv_lengths. If both are given, positions are used.
    row_slots and positions have the shape of k's rows, and are both int32 or both int64. With row_slots k may be [rows,
    ..] without q_begins.
    Each call reads all lists on the device: a replayed CUDA graph reads their new values.

    cos, sin: [positions, rotary_dim / 2], fp32, bf16 or fp16 (rotary_table() makes them). They rotate the first
    rotary_dim columns of k in pairs (i, i + rotary_dim / 2), or (2 i, 2 i + 1) with interleaved.
    q: like k, with num_heads_q heads. Its rotated rows are written into q_out, which may be q; None makes a new tensor.
    Arithmetic is fp32, rounded once.
    k_scale, v_scale: factors of 8-bit caches, as in attention_kvcache(). The cache gets round(value / factor), clamped
    to the largest finite value (int8: to -128 to 127, and NaN becomes 0).
    make_scales: True makes the factors and writes them into k_scale and v_scale, tensors of a factor per key and head.
    A factor is the row's largest magnitude / 448 (e5m2: / 57344, int8: / 127), at least 2^-126.
    k_factors, v_factors: for 4-bit caches, tensors of a factor for each 16 or 32 columns of each key, which the call
    makes and writes. A factor is the largest magnitude of its columns / 7 (e2m1: / 6) / k_scale, rounded to e4m3, so at
    least 2^-9 or 0, and at most 448. int4 gets -7 to 7; NaN becomes 0.

    A row is not written if its position is below 0 or beyond the cache or tables, or if its page or slot does not
    exist. Rows of q without angles become 0 in q_out. Head dims below 16, or not multiples of 8, are written through
    copies of the caches; a warning says so once. Tables are copied if their rows do not begin at multiples of 16 bytes.
    Returns q_out, or None without q. Takes PyTorch and NumPy (CPU). Has no gradients. Raises ValueError or TypeError if
    arguments do not fit, and attune.Error if the library refuses the call.
    Before a CUDA graph's capture, call prepare(append_kv, ...) with the same arguments."""
    return _computed(locals())
