# SPDX-License-Identifier: Apache-2.0
"""Lists of pages, of rows and of masks as FlashInfer's plan() has them, as tensors that attention_kvcache() takes. They are made once for all layers
of a step, and a captured graph finds those of later steps in the tensors of the first."""
import math

from .._flash_arguments import host_sees
from .._kvcache import check_begins, rounded
from .._programs import mask_mod

LAYOUTS = ("NHD", "HND")
LOG2_E, LN_2 = math.log2(math.e), math.log(2)


def check_layout(kv_layout):
    if kv_layout not in LAYOUTS:
        raise ValueError(f"kv_layout is {kv_layout!r}; accepted are {' and '.join(LAYOUTS)}")
    return kv_layout


def caches_of(paged_kv_cache, kv_layout):
    """K and V, [pages, page_size, num_kv_heads, head_dim], of a pair or of one tensor with both in its second axis."""
    k, v = paged_kv_cache if isinstance(paged_kv_cache, (tuple, list)) else (paged_kv_cache[:, 0], paged_kv_cache[:, 1])
    return (k.transpose(1, 2), v.transpose(1, 2)) if kv_layout == "HND" else (k, v)


def heads_last(k, v, kv_layout):
    """K and V of one request, [keys, num_kv_heads, head_dim]."""
    return (k, v) if check_layout(kv_layout) == "NHD" else (k.transpose(0, 1), v.transpose(0, 1))


def on_host(values):
    import torch
    return torch.as_tensor(values, device="cpu").long()


def device_of(workspace, *lists):
    """Of the workspace, where there is one; else a GPU where one of the lists is there."""
    if hasattr(workspace, "device"):
        return workspace.device
    devices = [one.device for one in lists if hasattr(one, "device")]
    return next((device for device in devices if device.type == "cuda"), "cpu")


def lengths_of(indptr, last_page_len, page_size):
    """Keys of each request: all of its pages are full but the last. Of tensors of one device."""
    counts = indptr[1:] - indptr[:-1]
    if last_page_len.shape != counts.shape:
        raise ValueError(f"kv_last_page_len has shape {tuple(last_page_len.shape)} and kv_indptr {tuple(indptr.shape)}; accepted are [batch] and [batch + 1]")
    if host_sees(last_page_len) and not all(0 <= n <= page_size for n in last_page_len.tolist()):
        raise ValueError(f"kv_last_page_len is {last_page_len.tolist()[:8]}; accepted are 0 to {page_size}, which a page has room for")
    return ((counts - 1).clamp(min=0) * page_size + last_page_len) * (counts > 0)


def pages_of(indptr, indices, lengths, device, page_size, name="paged_kv", most_pages=0):
    """page_table and kv_lengths of pages in one list, those of request i from indptr[i] to indptr[i + 1]; `lengths`: keys of each, in pages of page_size. The
    table is as wide as a power of two, so that steps share a plan."""
    import torch
    indptr, indices = on_host(indptr), on_host(indices)
    requests = indptr.numel() - 1
    if requests < 0:
        raise ValueError(f"{name}_indptr is empty; accepted is [batch + 1]: where the pages of each request begin, and where the last one's end")
    lengths = on_host(lengths)
    if lengths.numel() != requests:
        raise ValueError(f"{name}_indptr has {requests + 1} numbers and there are lengths of {lengths.numel()} requests; accepted are n + 1 and n")
    counts = indptr[1:] - indptr[:-1]
    if requests and (indptr[0] != 0 or counts.min() < 0 or int(indptr[-1]) > indices.numel()):
        raise ValueError(f"{name}_indptr goes from {int(indptr[0])} to {int(indptr[-1])} and there are {indices.numel()} indices; accepted are numbers from 0 "
                         "on that do not fall, up to as many")
    _refuse_beyond(lengths, counts, page_size)
    most = int(counts.max()) if requests else 0
    if most_pages and most > most_pages:
        raise ValueError(f"{name}_indptr has a request of {most} pages; accepted are {most_pages}, for which the wrapper was made (most_pages)")
    width = most_pages or rounded(most)
    table = torch.full((requests, width), -1, dtype=torch.int32, device="cpu")
    table[torch.arange(width, device="cpu")[None] < counts[:, None]] = indices[:int(indptr[-1])].int()
    return dict(kv_lengths=lengths.int().to(device), page_table=table.to(device))


def _refuse_beyond(lengths, pages, page_size):
    """Of keys that a request has no pages for."""
    beyond = (lengths < 0) | (lengths > pages * page_size)
    if beyond.any():
        i = int(beyond.int().argmax())
        raise ValueError(f"request {i} has {int(lengths[i])} keys and {int(pages[i])} pages of {page_size}; accepted are 0 to {int(pages[i]) * page_size} keys")


def tables_of(block_tables, lengths, device, page_size, most_pages=0):
    """pages_of() of pages that stand in a table already: int [batch, pages of the longest request]."""
    import torch
    lengths, columns = on_host(lengths), block_tables.shape[1] if block_tables.dim() == 2 else -1
    if tuple(block_tables.shape) != (lengths.numel(), columns):
        raise ValueError(f"block_tables has shape {tuple(block_tables.shape)}; accepted is [batch, pages], of {lengths.numel()} requests")
    _refuse_beyond(lengths, torch.full_like(lengths, columns), page_size)
    width = most_pages or rounded(columns)
    if columns > width:
        raise ValueError(f"block_tables has {columns} columns; accepted are {width}, for which the wrapper was made (most_pages)")
    table = torch.full((lengths.numel(), width), -1, dtype=torch.int32, device=device)
    table[:, :columns] = block_tables
    return dict(kv_lengths=lengths.int().to(device), page_table=table)


def rows_of(indptr, device, name, begins, most, requests=None):
    """A list of begins, and the most that any request has, by the names that attention_kvcache() has for them. `requests`: how many there are, and what
    says so."""
    indptr = on_host(indptr)
    if requests is not None and indptr.numel() != requests[0] + 1:
        raise ValueError(f"{name} has {indptr.numel()} numbers and {requests[1]} is of {requests[0]} requests; accepted are n + 1 of n")
    if indptr.numel() == 0 or indptr[0] != 0:
        raise ValueError(f"{name} is {indptr.tolist()[:4]}; accepted is [batch + 1], from 0 on")
    counts = indptr[1:] - indptr[:-1]
    largest = max(int(counts.max()) if counts.numel() else 0, 0)
    check_begins(name, indptr, "rows", int(indptr[-1]), most, largest)
    return {begins: indptr.int().to(device), most: largest}


def mask_of(custom_mask, packed_custom_mask, row_counts, key_counts, device, room=0):
    """Tensors of a mask that has the rows of all requests end to end, each with its own keys: bool, or bits of which each request's begin with a byte.
    `room`: bools that there are to be."""
    import torch
    rows, keys = on_host(row_counts), on_host(key_counts)
    sizes = rows * keys
    if packed_custom_mask is not None:
        packed = torch.as_tensor(packed_custom_mask, device="cpu")
        bits = (packed[:, None] >> torch.arange(8, dtype=torch.uint8, device="cpu")) & 1
        bytes_of = (sizes + 7) // 8
        begins = sizes.cumsum(0) - sizes
        if bits.shape[0] != int(bytes_of.sum()):
            raise ValueError(f"packed_custom_mask has {bits.shape[0]} bytes; accepted are {int(bytes_of.sum())}: of each request its rows times its keys, in "
                             "bits, from a byte on")
        padding = 8 * (bytes_of.cumsum(0) - bytes_of) - begins  # ahead of each request's
        flat = bits.flatten()[torch.arange(int(sizes.sum()), device="cpu") + padding.repeat_interleave(sizes)]
    else:
        flat, begins = torch.as_tensor(custom_mask, device="cpu").flatten(), sizes.cumsum(0) - sizes
        if flat.numel() != int(sizes.sum()):
            raise ValueError(f"custom_mask has {flat.numel()} elements; accepted are {int(sizes.sum())}: of each request its rows times its keys")
    if flat.numel() >= 1 << 31:
        raise ValueError(f"custom_mask has {flat.numel()} elements; accepted are less than 2^31, which programs count to")
    mask = torch.zeros(max(room, rounded(flat.numel())), dtype=torch.bool, device="cpu")
    mask[:flat.numel()] = flat.bool()
    lists = dict(mask=mask, mask_begins=begins.int(), mask_keys=keys.int(), mask_first=(keys - rows).int())
    return {name: tensor.to(device) for name, tensor in lists.items()}


def program_of(lists):
    """The mask_mod for such tensors."""
    mask, begins, keys, first = (lists[name] for name in ("mask", "mask_begins", "mask_keys", "mask_first"))
    return mask_mod(lambda b, h, q_idx, kv_idx: mask[begins[b] + (q_idx - first[b]) * keys[b] + kv_idx])


def goes_into(held, made, follow):
    """Whether what is made fits the tensors that are held. `follow`: a captured graph may have them, so that nothing else will do."""
    if held is None:
        return False
    unlike = [name for name in {**held, **made} if not _fits(held.get(name), made.get(name), follow)]
    if unlike and follow:
        shapes = [getattr(of.get(unlike[0]), "shape", of.get(unlike[0])) for of in (made, held)]
        raise ValueError(f"{unlike[0]} of this plan is {shapes[0]} and of the first {shapes[1]}; accepted with use_cuda_graph are plans of as many requests, and no "
                         "more rows, keys and pages than the first had (most_pages makes room), with a mask if that had one")
    return not unlike


def taken(held, made, follow):
    """What is made, in the tensors that are held, where it goes into them."""
    if not goes_into(held, made, follow):
        return written_anywhere(made)
    for name, new in made.items():
        if hasattr(new, "shape"):
            held[name][tuple(slice(0, n) for n in new.shape)].copy_(new)
    return held


def own(lists):
    """Copies of tensors."""
    return {name: value.clone() if hasattr(value, "shape") else value for name, value in lists.items()}


def written_anywhere(lists):
    """Tensors that later plans write into: those of torch.inference_mode() only that mode writes."""
    import torch
    if not any(hasattr(value, "shape") and value.is_inference() for value in lists.values()):
        return lists
    with torch.inference_mode(False):
        return own(lists)


def _fits(old, new, smaller):
    """Whether a tensor, or a number, goes into the place of another; `smaller`: one with less columns, too."""
    if old is None or new is None:
        return False
    if not hasattr(new, "shape"):
        return new <= old if smaller else new == old
    columns = all(a <= b for a, b in zip(new.shape[1:], old.shape[1:])) if smaller else old.shape[1:] == new.shape[1:]
    return old.device == new.device and old.shape[:1] == new.shape[:1] and columns


def _of_a_tensor(scale):
    """A factor of a whole tensor as attention_kvcache() has it: FlashInfer takes tensors of shape [1], too."""
    return scale.reshape(()) if tuple(getattr(scale, "shape", ())) == (1,) else scale


def scales_of(q, k, sm_scale, q_scale, k_scale, v_scale):
    """(keywords of attention_kvcache(), what its result is multiplied by). Factors of 16-bit tensors are in the scale; 8-bit caches have theirs."""
    keywords = {}
    if k.dtype.itemsize == 1:
        keywords = {name: 1.0 if scale is None else _of_a_tensor(scale) for name, scale in (("k_scale", k_scale), ("v_scale", v_scale))}
        k_scale = v_scale = None
    numbers = [float(factor) for factor in (q_scale, k_scale) if factor is not None]
    if sm_scale is not None or math.prod(numbers) != 1:
        keywords["scale"] = (q.shape[-1] ** -0.5 if sm_scale is None else float(sm_scale)) * math.prod(numbers)
    return keywords, 1.0 if v_scale is None else float(v_scale)


def in_base_2(lse):
    """[.., num_heads, rows] of natural logarithms as FlashInfer has them, [.., rows, num_heads]."""
    return (lse * LOG2_E).transpose(-1, -2).contiguous()


def natural(s):
    """The way back, [1, num_heads, rows] of [rows, num_heads]."""
    return (s.float() * LN_2).t().contiguous()[None]
