# SPDX-License-Identifier: Apache-2.0
"""attention_kvcache(): attention over keys and values in a cache. Calls with equal shapes, strides and choices share
one plan."""
import math

from ..core import tensors, torch_state
from ..core.flags import flag
from ..core.library import module
from ..core.operands import ALIGNMENT, extent_of, steps_of
from ..core.preparing import preparing
from ..core.problem import cache_mask, check_beside, mask_name, softmax_scale, whole, whole_or_none, window_sides
from ..core.torch_state import needs_op, records_gradients, refuse_gradients
from ..score.features import OVER_CACHES
from ..score.scores import scores_of
from . import quick
from .attention import choices_of
from .cache_factors import (
    LATENT, are_by_key, bind_factors, bind_groups, codes_of, columns_of_factor, has_latent_rows, refuse_beside_wide)
from .cache_padding import cut, is_between, wide_arguments
from .call import Call, Operand, check_new, kept_call, key_of
from .context import context_of
from .key_lists import check_lists_of_keys, give_lists_of_keys, list_of, lists_of_keys
from .key_lists import room_of_places, strides_of, text_of, v_is_in_k
from .public import OF_CACHES, public

_ROWS, _PACKED_ROWS = tensors.DIMENSIONS[tensors.ROWS], "[rows of all requests, num_heads, head_dim]"
_PACKED_KEYS = "[keys of all requests, num_heads_kv, head_dim]"
_PAGES, _SLOTS = "[num_pages, page_size, num_heads_kv, head_dim]", "[slots, seqlen_kv, num_heads_kv, head_dim]"
_LISTS = {
    "kv_lengths": "[batch]", "q_begins": "[batch + 1]", "page_table": "[batch, pages of the longest request]",
    "slots": "[batch]", "kv_begins": "[batch + 1]"}

_OPERANDS = Operand("q", "q"), Operand("k_cache", "k"), Operand("v_cache", "v"), Operand("out", "o", written=True)


def _packed_view(name, tensor, dimensions=_PACKED_ROWS):
    """Returns [rows, num_heads, head_dim] as [1, rows, num_heads, head_dim]."""
    tensors.check_rank(name, tensor, dimensions)
    return tensor[None]


def _of_some_rows(name, tensor, dimensions):
    """Returns the tensor, or one row that belongs to no request if it is empty: an empty tensor has neither address nor
    strides. Each head begins at an aligned address."""
    tensors.check_rank(name, tensor, dimensions)
    if tensor.shape[0] > 0:
        return tensor
    step = ALIGNMENT // tensors.item_bytes(tensor)
    return tensors.empty(tensor, (1, tensor.shape[1], -(-tensor.shape[2] // step) * step),
                         tensor.dtype)[..., :tensor.shape[2]]


def rounded(count):
    """Returns the next power of two. Numbers of packed rows and keys differ from call to call; rounded, similar calls
    share a plan."""
    return 1 << max(count - 1, 0).bit_length()


def _check_list(name, tensor, q):
    check_beside(name, tensor, q)
    tensors.check_plain(name, tensor)
    tensors.check_rank(name, tensor, _LISTS[name])
    if tensors.dtype_text(tensor.dtype) != "int32":
        raise ValueError(
            f"{name} is {tensors.dtype_text(tensor.dtype)}; must be int32, which kernels read on the device")
    if tensors.size_of(tensor.shape) and tensor.shape[-1] > 1 and tensors.element_strides(name, tensor)[-1] != 1:
        raise ValueError(
            f"{name} has strides {tuple(tensors.element_strides(name, tensor))}; the last must be 1 (copy the tensor)")


def _batch_of(q, lists):
    """Returns the number of requests. Raises if the lists do not agree on it."""
    if lists["q_begins"] is None:
        batch = q.shape[0]
    else:
        batch = lists["q_begins"].shape[0] - 1
        if batch < 0:
            raise ValueError(
                "q_begins is empty; must be [batch + 1]: the first row of each request and the end of the last request")
    for name, more in (("kv_lengths", 0), ("page_table", 0), ("slots", 0), ("kv_begins", 1)):
        if lists[name] is not None and lists[name].shape[0] != batch + more:
            raise ValueError(
                f"{name} has shape {tuple(lists[name].shape)}; must be {_LISTS[name]} for {batch} requests")
    return batch


def _dtypes(q, k_cache, v_cache, dtype_kv, codes, name_of_q="q"):
    """Returns the dtypes in the form of a problem's text. codes: the columns in an element of the caches."""
    of_q, caches = tensors.dtype_text(q.dtype), []
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        if tensors.dtype_text(tensor.dtype) == "uint8" and dtype_kv is None:
            raise ValueError(f"{name} is uint8 and dtype_kv is None; dtype_kv must be \"e4m3\", \"e5m2\", \"int8\", "
                             "\"int4\" or \"e2m1\"")
        caches.append(tensors.dtype_name(tensor, dtype_kv, name, "dtype_kv"))
    if of_q not in ("fp32", "bf16", "fp16"):
        raise ValueError(f"{name_of_q} is {of_q}; must be bf16, fp16 or fp32")
    for name, found in zip(("k_cache", "v_cache"), caches):
        narrow = found in tensors.NARROW_NAMES and of_q != "fp32"
        if found != caches[0] or not (narrow or found == of_q):
            k_too = "" if name == "k_cache" else f", k_cache is {caches[0]}"
            raise ValueError(
                f"{name} is {found}{k_too} and {name_of_q} is {of_q}; {name_of_q}, k_cache and v_cache must be the "
                f"same of bf16, fp16 and fp32, or caches of e4m3, e5m2, int8, int4 or e2m1 with a {name_of_q} of bf16 "
                f"or fp16")
    if (caches[0] in tensors.NIBBLE_NAMES) != (codes > 1):
        given = "None; must be the factors of its groups of columns" if codes == 1 else \
            "given; must be None: only caches of int4 and e2m1 have them"
        raise ValueError(f"k_cache is {caches[0]} and k_factors is {given}")
    return f"dtype={of_q}" + ("" if caches[0] == of_q else f",dtype_kv={caches[0]}")


def _problem(q, k_cache, v_cache, lists, keys, seqlen_q, seqlen_kv, keywords):
    """Returns the problem's text. q is [batch, seqlen_q, ..] or [1, rows, ..]."""
    codes = codes_of(keywords["kv_factors"])
    dtypes = _dtypes(q, k_cache, v_cache, keywords["dtype_kv"], codes)
    has_pages, packed, packed_kv = (lists[name] is not None for name in ("page_table", "q_begins", "kv_begins"))
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        tensors.check_rank(name, tensor, _PAGES if has_pages else _SLOTS)
    columns = q.shape[3] if keywords["kv_factors"] != "latent" else k_cache.shape[3]
    if tuple(v_cache.shape[:3]) != tuple(k_cache.shape[:3]) or columns != codes * k_cache.shape[3]:
        raise ValueError(
            f"k_cache has shape {tuple(k_cache.shape)}, v_cache {tuple(v_cache.shape)} and q {tuple(q.shape)}; caches "
            "must be equal but for their head_dim, and q and k_cache must have the same head_dim")
    batch = _batch_of(q, lists)
    heads, heads_kv = q.shape[2], k_cache.shape[2]
    rows = seqlen_q if packed else q.shape[1]
    page_size = k_cache.shape[1] if has_pages else 0
    by_place = keys["key_places"] is not None
    room = lists["page_table"].shape[1] * page_size if has_pages else k_cache.shape[1]
    if by_place:
        page_size, room = room_of_places(k_cache, keys)
        has_pages = page_size > 0
    longest = room if seqlen_kv is None else whole("seqlen_kv", seqlen_kv)
    if packed_kv:  # may exceed the keys that there are, as seqlen_q may
        longest = min(longest, room)
    if not 0 <= longest <= room:
        raise ValueError(
            f"seqlen_kv is {longest}; must be 0 to {room}, the room of the {'page_table' if has_pages else 'cache'}")
    if has_pages and page_size < 1:
        raise ValueError("k_cache has a page_size of 0; must be at least 1")
    if not has_pages and not packed_kv and longest != room:
        raise ValueError(
            f"seqlen_kv is {longest} and slots have {room} keys; must be None without page_table (kv_lengths says how "
            f"many keys count)")
    if packed_kv:
        longest = rounded(longest)
    if packed:
        rows = rounded(rows)
    left, right = window_sides(keywords["window"])
    mask = mask_name(cache_mask(keywords["mask"], keywords["is_causal"]), False, 0, 0)
    if keywords["mask"] == "none" and mask != "none":
        raise ValueError("mask is 'none' and is_causal is True; give one of the two")
    text = (
        f"op=attention_kvcache,{dtypes},head_dim_qk={q.shape[3]},head_dim_v={codes * v_cache.shape[3]},"
        f"heads={heads}/{heads_kv},batch={batch},seqlen_q={rows},seqlen_kv={longest},mask={mask}")
    places = k_cache.shape[1 if packed_kv else 0]
    if places:
        text += f",num_pages={rounded(places) if packed_kv else places}"  # each call gives its number of rows
    elif batch and longest:
        raise ValueError("k_cache has no pages or slots; must be at least 1")
    if left >= 0 or right >= 0:
        text += f",window={'-' if left < 0 else left}:{'-' if right < 0 else right}"
    text += (f",page_size={page_size}" if has_pages else "") + (",packed_q=1" if packed else "")
    text += f",kv_factors={keywords['kv_factors']}" if keywords["kv_factors"] else ""
    text += (",packed_kv=1" if packed_kv else "") + (",batch_invariant=1" if keywords["batch_invariant"] else
                                                     "") + (",v_in_k=1" if keywords["v_in_k"] else "")
    text += text_of(keys)
    scale = softmax_scale(keywords["scale"])
    return text if scale is None else f"{text},scale={scale!r}"


def _make_call(context, given, lists, keys, seqlen_q, seqlen_kv, keywords, scores):
    check_lists_of("attention_kvcache", given, lists, "q")
    q, k_cache, v_cache = (given[name] for name in ("q", "k_cache", "v_cache"))
    packed = lists["q_begins"] is not None
    check_lists_of_keys(keys, q, keywords["rows"], k_cache.shape[2])
    text = _problem(q, k_cache, v_cache, lists, keys, seqlen_q, seqlen_kv, keywords)
    text += "" if scores is None else scores.text
    if given["out"].dtype != q.dtype and tensors.dtype_text(given["out"].dtype) == "fp32":
        text += ",dtype_o=fp32"
    plan = context.plan_with_strides(text, [tensors.layout_strides(name, tensor) for name, tensor in given.items()],
                                     () if scores is None else scores.programs())
    p = plan.problem
    of = dict(q=p.dtype, k_cache=p.dtype_kv, v_cache=p.dtype_kv, out=p.dtype_o)
    rows, places = tuple(q.shape[:2]), tuple(k_cache.shape[:2])
    codes = codes_of(keywords["kv_factors"])
    of_key = k_cache.shape[3] if p.kv_factors == LATENT else p.head_dim_qk // codes
    shapes = {"q": (*rows, p.num_heads_q, p.head_dim_qk), "k_cache": (*places, p.num_heads_kv, of_key),
              "v_cache": (*places, p.num_heads_kv, p.head_dim_v // codes),
              "out": (*rows, p.num_heads_q, p.head_dim_v)}
    extents = {
        name: extent_of(name, tensor, shapes[name], tensors.DTYPES[of[name]], plan.target, q)
        for name, tensor in given.items()}
    steps = {name: steps_of(extents["k_cache" if p.v_in_k and name == "v_cache" else name]) for name in given}
    return Call(plan, _OPERANDS, extents, steps, stride=stride_of(lists["page_table"]),
                key_strides=strides_of(keys, 1 if packed else 2))


def check_lists_of(function, given, lists, first):
    """Checks the lists of a call that is not kept, and its other tensors as check_new() does."""
    for name, tensor in lists.items():
        if tensor is not None:
            _check_list(name, tensor, given[first])
    check_new(function, given, first)


def stride_of(page_table):
    return 0 if page_table is None else tensors.element_strides("page_table", page_table)[0]


def give_lists(operands, lists, stride, num_pages=0):
    """Puts the lists into the struct of a call. Returns the object that must live until the call is enqueued."""
    addresses = {name: None if x is None else tensors.address(name, x) for name, x in lists.items()}
    operands.cache = module.CacheOperands(page_table_stride=stride, num_pages=num_pages, **addresses)
    return operands.cache


def _rows_of_lse(q, lists, seqlen_q):
    """Returns memory for lse, and the view of it that callers get. For packed rows the view is [num_heads, rows], cut
    from the largest possible number of rows. Rows that no request holds get -inf, so that merge() ignores them."""
    fp32, heads = tensors.native_dtype(q, "fp32"), q.shape[2]
    if lists["q_begins"] is None:
        made = tensors.empty(q, (q.shape[0], heads, q.shape[1]), fp32)
        return made, made
    room = (lists["q_begins"].shape[0] - 1) * rounded(seqlen_q)
    made = tensors.empty(q, (heads, max(room, q.shape[1])), fp32)
    tensors.fill(made, -math.inf)
    return made, made[:, :q.shape[1]]


def check_begins(name, begins, places, room, most_name, most):
    """Checks a list on a CPU, where the host sees it. Kernels trust it: `room` places (rows or keys), at most `most`
    per request."""
    before = 0
    for i, begin in enumerate(begins.tolist()):
        if not before <= begin <= room:
            raise ValueError(
                f"{name}[{i}] is {begin}; must be {before} to {room}: not below the one before, nor above the "
                f"number of {places}")
        if i and begin - before > most:
            raise ValueError(
                f"{name}[{i}] - {name}[{i - 1}] is {begin - before} and {most_name} is {most}; {most_name} must be at "
                f"least the {places} of each request")
        before = begin


def _check_lists(lists, rows, seqlen_q, keys, seqlen_kv, room):
    if lists["kv_lengths"] is not None:
        for i, length in enumerate(lists["kv_lengths"].tolist()):
            if not 0 <= length <= room:
                raise ValueError(f"kv_lengths[{i}] is {length}; must be 0 to {room}, the cache's room")
    if lists["q_begins"] is not None:
        check_begins("q_begins", lists["q_begins"], "rows", rows, "seqlen_q", seqlen_q)
    if lists["kv_begins"] is not None:
        check_begins("kv_begins", lists["kv_begins"], "keys", keys, "seqlen_kv",
                     keys if lists["kv_lengths"] is not None else seqlen_kv)


def _call_of(context, given, lists, keys, seqlen_q, seqlen_kv, keywords, scores):
    choices = choices_of(*(keywords[name] for name in ("mask", "window", "scale", "is_causal")),
                         dtype_kv=keywords["dtype_kv"])
    key = ("kvcache", *key_of(given), *key_of(lists), *key_of(keys), seqlen_q, seqlen_kv, choices,
           *(keywords[name] for name in ("batch_invariant", "v_in_k", "kv_factors")),
           None if scores is None else scores.key)
    context = context_of(context, tensors.check_device("q", given["q"]))
    return kept_call(context, key, lambda: _make_call(context, given, lists, keys, seqlen_q, seqlen_kv, keywords,
                                                       scores))


def _bind(call, given, lists, keys, lse):
    operands, _ = call.bind(given)
    if lists["q_begins"] is not None:
        rows = call.plan.problem.batch * call.plan.problem.seqlen_q if lse is None else lse.shape[1]
        operands.lse_head_stride, operands.lse_batch_stride = rows, rows * (1 if lse is None else lse.shape[0])
    if lse is not None:
        operands.lse = tensors.address("lse", lse, True)
    packed_keys = 0 if lists["kv_begins"] is None else given["k_cache"].shape[1]
    cache = give_lists(operands, lists, call.stride, packed_keys)
    give_lists_of_keys(cache, keys, call.key_strides)
    return operands, cache


def _taken(q, k_cache, v_cache, kv_lengths, page_table, slots, q_begins, seqlen_q, kv_begins, seqlen_kv, out, codes):
    """Returns the operands in the form that kernels take, by name, and the lists."""
    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        tensors.signature(name, tensor)  # refuses other types
    lists = dict(kv_lengths=kv_lengths, q_begins=q_begins, page_table=page_table, slots=slots, kv_begins=kv_begins)
    for name, tensor in lists.items():
        if tensor is not None:
            tensors.signature(name, tensor)
    if out is not None:
        tensors.signature("out", out)
    if seqlen_kv is not None and whole("seqlen_kv", seqlen_kv) < 0:
        raise ValueError(f"seqlen_kv is {seqlen_kv}; must be at least 0")
    if (q_begins is None) != (seqlen_q is None):
        raise ValueError(
            f"{'q_begins' if seqlen_q is None else 'seqlen_q'} is given alone; give q_begins and seqlen_q, or neither "
            f"(seqlen_q is the most rows of a request, which only the caller knows)")
    places = [name for name in ("page_table", "slots", "kv_begins") if lists[name] is not None]
    if len(places) > 1:
        raise ValueError(f"{' and '.join(places)} are given; give at most one")
    if kv_begins is not None:
        if seqlen_kv is None:
            raise ValueError(
                "kv_begins is given without seqlen_kv; give both (seqlen_kv is the most keys of a request, which only "
                "the caller knows)")
        k_cache, v_cache = (_packed_view(name, _of_some_rows(name, tensor, _PACKED_KEYS), _PACKED_KEYS)
                            for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)))
    if q_begins is None:
        tensors.check_rank("q", q, _ROWS)
        rows, made = q, out
    else:
        if whole("seqlen_q", seqlen_q) < 0:
            raise ValueError(f"seqlen_q is {seqlen_q}; must be at least 0")
        rows = _packed_view("q", _of_some_rows("q", q, _PACKED_ROWS))
        made = None if out is None else _packed_view("out", _of_some_rows("out", out, _PACKED_ROWS))
    if out is not None:
        tensors.check_rank("out", out, _ROWS if q_begins is None else _PACKED_ROWS)
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        tensors.check_rank(name, tensor, _SLOTS if page_table is None else _PAGES)
    if made is None:
        made = tensors.empty(q, (*rows.shape[:3], codes * v_cache.shape[-1]), q.dtype)
    return dict(q=rows, k_cache=k_cache, v_cache=v_cache, out=made), lists


def _computed(arguments):
    """Returns attention_kvcache()'s result for all of its arguments by name, and the recipe by which the C module can
    repeat the call (see quick.py), or None."""
    q, k_cache, v_cache, out, q_begins, seqlen_q, seqlen_kv, kv_begins = (
        arguments[name]
        for name in ("q", "k_cache", "v_cache", "out", "q_begins", "seqlen_q", "seqlen_kv", "kv_begins"))
    return_lse = flag("return_lse", arguments["return_lse"])
    groups = {name: arguments[name] for name in ("k_factors", "v_factors")}
    graph = needs_op(q, k_cache, v_cache, autocast=False, named=("q", "k_cache", "v_cache"))
    if graph is not None:
        return graph.attend_cache(**arguments), None
    if arguments["key_indices"] is not None and records_gradients(q, k_cache, v_cache):
        return torch_state.load_train().attend_lists({**arguments, "return_lse": return_lse}), None
    refuse_gradients((name, arguments[name])
                     for name in ("q", "k_cache", "v_cache", "out", "k_scale", "v_scale", *OVER_CACHES))
    if is_between(q, k_cache, v_cache):
        return cut(attention_kvcache(**wide_arguments(arguments)), arguments), None
    columns = columns_of_factor(groups, q)
    given, lists = _taken(q, k_cache, v_cache, *(arguments[name] for name in ("kv_lengths", "page_table", "slots")),
                          q_begins, seqlen_q, kv_begins, seqlen_kv, out, codes_of(columns))
    seqlen_q, seqlen_kv = whole_or_none("seqlen_q", seqlen_q), whole_or_none("seqlen_kv", seqlen_kv)
    keys = lists_of_keys(arguments)
    scores = scores_of(arguments)
    factors = {name: arguments[name] for name in ("k_scale", "v_scale")}
    refuse_beside_wide(factors, given["k_cache"])
    keywords = {name: arguments[name] for name in ("mask", "window", "scale", "is_causal", "dtype_kv")}
    in_k = v_is_in_k(given["k_cache"], given["v_cache"])
    latent = in_k and has_latent_rows(given["q"], given["k_cache"], given["v_cache"])
    keywords.update(batch_invariant=flag("batch_invariant", arguments["batch_invariant"]), v_in_k=in_k,
                    kv_factors=columns or
                    ("latent" if latent else "keys" if are_by_key(factors, kv_begins is not None) else ""))
    keywords["rows"] = tuple(q.shape[:-2])
    call = _call_of(arguments["context"], given, lists, keys, seqlen_q, seqlen_kv, keywords, scores)
    if call.plan.ordinal < 0 and not preparing():
        _check_lists(lists, q.shape[0], seqlen_q, k_cache.shape[0], seqlen_kv, call.plan.problem.seqlen_kv)
    lse, shown = _rows_of_lse(given["q"], lists, seqlen_q) if return_lse else (None, None)
    operands, cache = _bind(call, given, lists, keys, lse)
    bind_groups(call, cache, given["q"], groups, given)
    scales = bind_factors(call, operands, given["q"], factors, given, {"out": operands.o.data}, kv_begins is not None)
    kept = None if scores is None else scores.give(operands, call.plan)  # lives until the call is enqueued
    stream = call.run(operands) if tensors.size_of(q.shape) else None  # there may be no packed rows
    result = given["out"]
    if q_begins is not None:
        result, shown = result[0][:q.shape[0]], None if shown is None else shown[:, :q.shape[0]]
    result = (result if out is None else out, shown) if return_lse else result if out is None else out
    kept = (kept, cache, scales)
    if scores is not None and not scores.may_be_repeated() or not _may_be_repeated(call.plan, arguments):
        return result, None
    return result, lambda: quick.recipe_of_caches(call, operands, arguments, scores, kept, stream)


def _may_be_repeated(plan, arguments):
    """True if the C module's key covers all that such calls depend on. It does not cover lists on a CPU, whose values
    are checked, and lse of packed rows, which is cut."""
    if list_of(arguments)[0] is not None:  # the module's key does not cover what their struct needs
        return False
    if any(tensors.size_of(arguments[name].shape) == 0 for name in ("q", "k_cache", "v_cache")):
        return False
    if arguments["q_begins"] is not None and arguments["return_lse"]:
        return False
    return not plan.problem.kv_factors and (plan.ordinal >= 0 or all(arguments[name] is None for name in _LISTS))


@public("attend_cache", OF_CACHES)
def attention_kvcache(q, k_cache, v_cache, kv_lengths=None, *, page_table=None, slots=None, q_begins=None,
                      seqlen_q=None, kv_begins=None, seqlen_kv=None, mask=None, is_causal=False, window=None,
                      scale=None, return_lse=False, out=None, context=None, softcap=None, alibi_slopes=None,
                      score_mod=None, mask_mod=None, sinks=None, k_scale=None, v_scale=None, dtype_kv=None,
                      batch_invariant=False, key_indices=None, key_places=None, key_counts=None, k_factors=None,
                      v_factors=None):
    """Returns attention over keys and values in a cache: for decoding, speculative tokens and short pieces of prompts.

    q: [batch, seqlen_q, num_heads_q, head_dim], the newest tokens of each request. With q_begins (int32 [batch + 1]):
    [rows, num_heads_q, head_dim], the rows of all requests end to end, at most `seqlen_q` per request.
    k_cache, v_cache: one of three forms.
    With page_table (int32 [batch, pages]): pages [num_pages, page_size, num_heads_kv, head_dim] of any size.
    With kv_begins (int32 [batch + 1]): [keys, num_heads_kv, head_dim], the keys of all requests end to end, at most
    `seqlen_kv` per request.
    Otherwise: slots [slots, seqlen_kv, num_heads_kv, head_dim]. Request b uses slot b, or slots[b] (int32).
    Strides are multiples of 16 bytes, at least 0, and 1 in head_dim. For [.., num_heads_kv, page_size, head_dim] give
    x.transpose(1, 2).
    kv_lengths: int32 [batch], keys of each request including its newest tokens, which must be in the cache. None: the
    cache's room.
    seqlen_kv: the most keys of a request, with pages. None: the page table's room.
    Each call reads these lists on the device. Nothing waits for the host, and a replayed CUDA graph reads their new
    values. On a CPU, lengths and begins out of range are refused.

    key_indices: int32 [batch, seqlen_q, length] (packed rows: [rows, length]), the keys that each row sees, as
    positions in its request. With an axis [.., num_heads_kv, length] each head of k_cache has its own lists. A key that
    is named twice counts twice; an entry that names no key, such as -1, is skipped. mask and window must be None.
    key_places: like key_indices, but an entry is a place in the cache: page * page_size + index in the page, or slot *
    seqlen_kv + index in the slot. Without kv_lengths, page_table, slots and kv_begins.
    key_counts: int32 [batch, seqlen_q] (packed rows: [rows]), how many entries of its list each row reads. None: all.

    8-bit caches are e4m3, e5m2 or int8 (NumPy: uint8 with dtype_kv by name). q is then bf16 or fp16, and products are
    fp16: values of q beyond 65504 are clamped to it.
    k_scale, v_scale: their factors, required. Each is a number (1.0: values are used unchanged), float32 of shape [] or
    [1, num_heads_kv], or one factor per key and head: [num_pages, page_size, num_heads_kv]. Slots and packed keys work
    the same way. An axis of size 1 broadcasts: [num_pages, 1, ..] is a factor per page. Strides are at least 0, so
    factors may be stored between the rows of the cache.
    Latent rows may hold their factors: with v_cache = k_cache[.., :512], k_cache may have 512 codes of e4m3, 4 factors
    (float32, one for every 128 codes) and the other columns in bf16: 656 bytes for a head_dim of 576. q is then bf16.

    4-bit caches are uint8 with dtype_kv "int4" or "e2m1" (or torch.float4_e2m1fn_x2): [.., head_dim / 2], two columns
    in a byte, the even one in its low bits. Head dims are multiples of 32.
    k_factors, v_factors: their factors, e4m3 [num_pages, page_size, num_heads_kv, head_dim / 16] (or / 32). Slots and
    packed keys work the same way. A factor multiplies 16 (or 32) columns of a key, and so does k_scale or v_scale
    (None: 1). Rows of factors begin at multiples of their largest power of two in bytes, 4 to 16. Kernels read whole
    lines if keys of a head are adjacent: empty(num_pages, num_heads_kv, page_size, head_dim / 16).transpose(1, 2).

    mask, is_causal, window, scale, sinks, softcap, alibi_slopes, score_mod, mask_mod: as in attention(). The last row
    of a request is at its last key (bottom right). q_idx of programs is that position. It is below 0 for rows that a
    request has in excess of its keys; there programs read tensors at their first element.
    seqlen_q and seqlen_kv in a program's text are the request's own numbers of rows and keys.
    Head dims go up to 576, v_cache's up to 512. Multiples of 16 are fast. Others than multiples of 8 from 16 on are
    computed in copies of the caches padded with zero columns; a warning says so once.

    If v_cache is k_cache[..., :n] itself (absorbed latent attention: 576 columns, the first 512 are values), keys are
    read once.

    batch_invariant: if True, the bits of a request's result depend only on its own rows and keys and on seqlen_q. They
    do not depend on other requests, their number, or the places of pages. If False, equal bits need an equal batch.

    Returns out: q's shape with v_cache's head_dim. A given out may be fp32, also beside q of 16 bits: merge() joins
    such results without rounding them. With return_lse returns (out, lse); lse is fp32 [batch, num_heads_q,
    seqlen_q], or [num_heads_q, rows] for packed rows. A row that sees no key gets 0 and -inf.
    Packed rows that no request holds (ahead of q_begins[0], or from q_begins[batch] on) get lse = -inf. Their rows of
    out are not written; a new out holds arbitrary values there.
    Takes bf16, fp16 and fp32 (CPU), of PyTorch and NumPy. PyTorch's autograd gets gradients of q, k_cache and v_cache
    with key_indices, over slots that requests fill: without kv_lengths, page_table, slots, q_begins, kv_begins, out,
    factors and score features. Other calls have no gradients. Raises ValueError or TypeError if arguments
    do not fit, and attune.Error if the library refuses the call.
    Before a CUDA graph's capture, call prepare(attention_kvcache, ...)."""
    return _computed(locals())
