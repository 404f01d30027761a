# SPDX-License-Identifier: Apache-2.0
"""Converts FlashInfer's lists of pages and rows to tensors for attention_kvcache(), once for all layers of a step. The
lists of later steps are copied into the tensors of the first, where a captured graph finds them. masks.py has the
masks."""
import math

from ..core import tensors
from ..ops.kvcache import check_begins, rounded
from ..adapters.lists import host_sees
from . import arguments

LAYOUTS = ("NHD", "HND")
LOG2_E, LN_2 = math.log2(math.e), math.log(2)


def check_layout(kv_layout):
    if not isinstance(kv_layout, str) or kv_layout not in LAYOUTS:
        raise ValueError(f"kv_layout is {kv_layout!r}; must be {' or '.join(LAYOUTS)}")
    return kv_layout


def caches_of(paged_kv_cache, kv_layout, name="paged_kv_cache"):
    """Returns K and V [pages, page_size, num_kv_heads, head_dim], from a pair or from one tensor with both in its
    second axis. Pages of one key may lack the axis of keys."""
    if isinstance(paged_kv_cache, (tuple, list)):
        k, v = paged_kv_cache if len(paged_kv_cache) == 2 else (None, None)
    else:
        both = paged_kv_cache if tensors.is_torch(paged_kv_cache) and paged_kv_cache.dim() in (
            4, 5) and paged_kv_cache.shape[1] == 2 else None
        k, v = (None, None) if both is None else both.unbind(1)
    if not (tensors.is_torch(k) and tensors.is_torch(v)) or k.dim() not in (3, 4) or v.dim() != k.dim():
        _refuse_caches(paged_kv_cache, kv_layout, name)
    if k.dim() == 3:
        k, v = k.unsqueeze(1), v.unsqueeze(1)
    elif kv_layout == "HND":
        k, v = k.transpose(1, 2), v.transpose(1, 2)
    if k.shape[:3] != v.shape[:3] or k.dtype != v.dtype or k.device != v.device:
        raise ValueError(
            f"{name} has K of {k.dtype}, shape {tuple(k.shape)}, on {k.device} and V of {v.dtype}, {tuple(v.shape)}, "
            f"on {v.device}; both must be equal but for head_dim")
    arguments.refuse_other_codes(name, k)
    return k, v


def groups_of(kv_cache_sf, kv_layout):
    """Returns the keywords of attention_kvcache() for a cache of NVFP4 with these factors; none without factors."""
    if kv_cache_sf is None:
        return None
    k, v = caches_of(kv_cache_sf, kv_layout, "kv_cache_sf")
    return {"k_factors": k, "v_factors": v, "dtype_kv": "e2m1"}


def _refuse_caches(given, kv_layout, name):
    def words(x):
        return f"of shape {tuple(x.shape)}" if tensors.is_torch(x) else tensors.kind_text(x)
    found = f"a pair or list of {[words(x) for x in given]}" if isinstance(given, (tuple, list)) else words(given)
    rest = "page_size, num_kv_heads" if kv_layout == "NHD" else "num_kv_heads, page_size"
    raise ValueError(
        f"{name} is {found}; must be a tensor [pages, 2, {rest}, head_dim], or a pair of K and V without the second "
        "axis; pages of one key may lack the axis of page_size")


def heads_last(k, v, kv_layout, names=("k", "v")):
    """Returns K and V of one request, [keys, num_kv_heads, head_dim]."""
    wanted = "[keys, num_kv_heads, head_dim]" if check_layout(kv_layout) == "NHD" else "[num_kv_heads, keys, head_dim]"
    for name, tensor in zip(names, (k, v)):
        arguments.floats_or_codes(name, tensor, wanted)
    if k.shape[:2] != v.shape[:2] or k.dtype != v.dtype or k.device != v.device:
        raise ValueError(
            f"{names[1]} is {v.dtype} of shape {tuple(v.shape)} on {v.device} and {names[0]} {k.dtype} of "
            f"{tuple(k.shape)} on {k.device}; both must be equal but for head_dim")
    return (k, v) if kv_layout == "NHD" else (k.transpose(0, 1), v.transpose(0, 1))


def on_host(values):
    import torch
    return torch.as_tensor(values, device="cpu")


def write_buffers(places):
    """Writes lists (tensors on any device, or Python lists) into the places of a caller's buffers."""
    import torch
    for place, values in places:
        place.copy_(torch.as_tensor(values))


def device_of(workspace, *lists):
    """Returns the workspace's device; without one, a GPU if one of the lists is there, otherwise the CPU."""
    if hasattr(workspace, "device"):
        return workspace.device
    devices = [one.device for one in lists if hasattr(one, "device")]
    return next((device for device in devices if device.type == "cuda"), "cpu")


def lengths_of(indptr, last_page_len, page_size, names=("kv_indptr", "kv_last_page_len")):
    """Returns the number of keys of each request: all its pages but the last are full. Both lists are tensors on one
    device."""
    counts = indptr[1:] - indptr[:-1]
    if last_page_len.shape != counts.shape:
        raise ValueError(
            f"{names[1]} has shape {tuple(last_page_len.shape)} and {names[0]} {tuple(indptr.shape)}; must be [batch] "
            f"and [batch + 1]")
    if host_sees(last_page_len) and not all(0 <= n <= page_size for n in last_page_len.tolist()):
        raise ValueError(
            f"{names[1]} is {last_page_len.tolist()[:8]}; must be 0 to {page_size}, the page size")
    return ((counts - 1).clamp(min=0) * page_size + last_page_len) * (counts > 0)


def keys_of(indptr, last_page_len, seq_lens, page_size, names):
    """Returns the number of keys of each request on the host: seq_lens if it is given, which must agree with
    last_page_len. names: the caller's names of the three lists."""
    if seq_lens is None:
        return lengths_of(indptr, arguments.integers(names[1], last_page_len, "[batch]"), page_size, names[:2])
    lengths = arguments.integers(names[2], seq_lens, "[batch]")
    if last_page_len is not None:
        last = arguments.integers(names[1], last_page_len, "[batch]")
        if last.shape == lengths.shape and not bool(
            ((last == lengths) | ((lengths - last) % page_size == 0) & (last <= page_size)).all()):
            raise ValueError(
                f"{names[1]} is {last.tolist()[:8]} and {names[2]} {lengths.tolist()[:8]}, in pages of {page_size}; "
                f"must agree")
    return lengths


def pages_of(indptr, indices, lengths, device, page_size, names=("paged_kv_indptr", "paged_kv_indices"), most_pages=0):
    """Returns (page_table and kv_lengths by name, the least number of pages that a cache must have), from a list of the
    pages of all requests.

    Request i has the pages indptr[i] to indptr[i + 1] of the list. lengths: its keys, in pages of page_size. Lists are
    on the host. The table's width is a power of two, so that steps share a plan."""
    import torch
    requests, name = indptr.numel() - 1, names[0]
    if requests < 0:
        raise ValueError(
            f"{name} is empty; must be [batch + 1]: the first page of each request and the end of the last request")
    if lengths.numel() != requests:
        raise ValueError(
            f"{name} has {requests + 1} numbers and there are lengths of {lengths.numel()} requests; must have one "
            f"number more than requests")
    counts = indptr[1:] - indptr[:-1]
    if requests and (indptr[0] != 0 or counts.min() < 0 or int(indptr[-1]) > indices.numel()):
        raise ValueError(
            f"{name} goes from {int(indptr[0])} to {int(indptr[-1])}; must start at 0, never decrease, and end at "
            f"{indices.numel()} or below (the pages of {names[1]})")
    _refuse_beyond(lengths, counts, page_size)
    most = int(counts.max()) if requests else 0
    if most_pages and most > most_pages:
        raise ValueError(
            f"{name} has a request of {most} pages; must be at most {most_pages}, for which the wrapper was made "
            f"(most_pages)")
    width = most_pages or rounded(most)
    table = torch.full((requests, width), -1, dtype=torch.int32, device="cpu")
    used = indices[:int(indptr[-1])] if requests else indices[:0]
    if used.numel() and int(used.min()) < 0:
        raise ValueError(f"{names[1]} has a page {int(used.min())}; must be at least 0")
    table[torch.arange(width, device="cpu")[None] < counts[:, None]] = used.int()
    return dict(kv_lengths=lengths.int().to(device),
                page_table=table.to(device)), int(used.max()) + 1 if used.numel() else 0


def _refuse_beyond(lengths, pages, page_size):
    """Raises if a request has more keys than its pages hold."""
    beyond = (lengths < 0) | (lengths > pages * page_size)
    if beyond.any():
        i = int(beyond.int().argmax())
        raise ValueError(
            f"request {i} has {int(lengths[i])} keys and {int(pages[i])} pages of {page_size}; must be 0 to "
            f"{int(pages[i]) * page_size} keys")


def tables_of(block_tables, lengths, device, page_size, most_pages=0):
    """Returns the same as pages_of() for pages in a table, int [batch, pages of the longest request]. Page numbers are
    checked only if the table is on a CPU."""
    import torch
    arguments.check_integers("block_tables", block_tables, "[batch, pages]", 2)
    columns = block_tables.shape[1]
    if block_tables.shape[0] != lengths.numel():
        raise ValueError(
            f"block_tables has shape {tuple(block_tables.shape)}; must be [batch, pages] for {lengths.numel()} "
            f"requests")
    _refuse_beyond(lengths, torch.full_like(lengths, columns), page_size)
    width = most_pages or rounded(columns)
    if columns > width:
        raise ValueError(
            f"block_tables has {columns} columns; must be at most {width}, for which the wrapper was made (most_pages)")
    table = torch.full((lengths.numel(), width), -1, dtype=torch.int32, device=device)
    table[:, :columns] = block_tables
    most = 0
    if host_sees(block_tables) and lengths.numel():
        used = block_tables[torch.arange(columns)[None] * page_size < lengths[:, None]]
        if used.numel() and int(used.min()) < 0:
            raise ValueError(
                f"block_tables has page {int(used.min())} among the pages of a request; must be at least 0")
        most = int(used.max()) + 1 if used.numel() else 0
    return dict(kv_lengths=lengths.int().to(device), page_table=table), most


def rows_of(indptr, device, name, begins, most, requests=None):
    """Returns a list of begins, and the most rows of a request, under the names `begins` and `most` of
    attention_kvcache()'s arguments. indptr is on the host. requests: (their number, the argument it comes from)."""
    if requests is not None and indptr.numel() != requests[0] + 1:
        raise ValueError(
            f"{name} has {indptr.numel()} numbers and {requests[1]} is of {requests[0]} requests; must be "
            f"{requests[0] + 1} numbers")
    if indptr.numel() == 0 or indptr[0] != 0:
        raise ValueError(f"{name} is {indptr.tolist()[:4]}; must be [batch + 1], beginning with 0")
    counts = indptr[1:] - indptr[:-1]
    largest = max(int(counts.max()) if counts.numel() else 0, 0)
    check_begins(name, indptr, "rows", int(indptr[-1]), most, largest)
    return {begins: indptr.int().to(device), most: largest}


def check_bounds(most_rows, most_keys, row_counts, key_counts):
    """Raises if plan()'s bounds, max_token_per_sequence and max_sequence_kv, are below its lists' values."""
    for name, most, counts in (("max_token_per_sequence", most_rows, row_counts), ("max_sequence_kv", most_keys,
                                                                                   key_counts)):
        found = int(counts.max()) if counts.numel() else 0
        if most is not None and arguments.count(name, most, 0) < found:
            raise ValueError(f"{name} is {most} and a request has {found}; must be at least as many")


def check_counts(name, given, counts, whose):
    """Raises if a given list of counts differs from `counts`, which follow from the argument named `whose`."""
    if given is not None and not torch_equal(arguments.integers(name, given, "[batch]"), counts):
        raise ValueError(f"{name} contradicts {whose}; must be {counts.tolist()[:8]}" +
                         (" .." if counts.numel() > 8 else ""))


def torch_equal(a, b):
    return a.shape == b.shape and bool((a == b).all())


def goes_into(held, made, follow):
    """True if the new lists fit the tensors that are held. follow: True raises if they do not, because a captured graph
    may hold these tensors."""
    if held is None:
        return False
    unlike = [name for name in {**held, **made} if not _fits(held.get(name), made.get(name), follow)]
    if unlike and follow:
        shapes = [getattr(of.get(unlike[0]), "shape", of.get(unlike[0])) for of in (made, held)]
        raise ValueError(
            f"{unlike[0]} of this plan is {shapes[0]} and of the first {shapes[1]}; with use_cuda_graph a plan must "
            "have as many requests, no more rows, keys and pages than the first (most_pages makes room), and a mask if "
            "the first has one")
    return not unlike


def taken(held, made, follow):
    """Returns the new lists, in the held tensors if they fit."""
    if not goes_into(held, made, follow):
        return written_anywhere(made)
    for name, new in made.items():
        if hasattr(new, "shape"):
            held[name][tuple(slice(0, n) for n in new.shape)].copy_(new)
    return held


def own(lists):
    """Returns copies of the tensors."""
    return {name: value.clone() if hasattr(value, "shape") else value for name, value in lists.items()}


def written_anywhere(lists):
    """Returns tensors that later plans can write into. Tensors made under torch.inference_mode() are copied, because
    they can be written only there."""
    import torch
    if not any(hasattr(value, "shape") and value.is_inference() for value in lists.values()):
        return lists
    with torch.inference_mode(False):
        return own(lists)


def _fits(old, new, smaller):
    """True if a tensor or number fits into the place of another. smaller: True allows fewer columns."""
    if old is None or new is None:
        return False
    if not hasattr(new, "shape"):
        return new <= old if smaller else new == old
    columns = all(a <= b for a, b in zip(new.shape[1:], old.shape[1:])) if smaller else old.shape[1:] == new.shape[1:]
    return old.device == new.device and old.shape[:1] == new.shape[:1] and columns


def scales_of(q, k, sm_scale, q_scale, k_scale, v_scale):
    """Returns (keywords of attention_kvcache(), the factor of its result). q_scale, and k_scale of a 16-bit cache, go
    into the scale; 8-bit caches have k_scale and v_scale as keywords."""
    keywords = {}
    if k.dtype.itemsize == 1:
        factors = (("k_scale", k_scale), ("v_scale", v_scale))
        keywords = {name: 1.0 if scale is None else _factor(name, scale) for name, scale in factors}
        k_scale = v_scale = None
    numbers = [
        arguments.number(name, factor) for name, factor in (("q_scale", q_scale), ("k_scale", k_scale))
        if factor is not None]
    if sm_scale is not None or math.prod(numbers) != 1:
        keywords["scale"] = (q.shape[-1]**-0.5
                             if sm_scale is None else arguments.scale_of("sm_scale", sm_scale)) * math.prod(numbers)
        if keywords["scale"] <= 0:
            raise ValueError(f"q_scale times k_scale is {math.prod(numbers)}; must be above 0")
    return keywords, 1.0 if v_scale is None else arguments.number("v_scale", v_scale)


def _factor(name, scale):
    """Returns an 8-bit cache's factor in attention_kvcache()'s form. FlashInfer also takes tensors of shape [1]."""
    if tuple(getattr(scale, "shape", ())) in ((), (1,)) and not tensors.is_torch(scale):
        return arguments.number(name, scale)
    return scale.reshape(()) if tuple(scale.shape) == (1,) else scale


def in_base_2(lse):
    """Returns natural logarithms [.., num_heads, rows] in FlashInfer's form: base 2, [.., rows, num_heads]."""
    return (lse * LOG2_E).transpose(-1, -2).contiguous()


def natural(s):
    """Returns [1, num_heads, rows] of natural logarithms, from [rows, num_heads] in base 2."""
    return (s.float() * LN_2).t().contiguous()[None]
