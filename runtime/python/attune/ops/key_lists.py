# SPDX-License-Identifier: Apache-2.0
"""The lists by which rows of q name the keys that they see, in attention_kvcache() and attention_backward(): their
checks, their part of the problem's text, and their places in the struct of a call. Used by kvcache.py and
backward.py."""
from ..core import tensors
from ..core.problem import check_beside

NAMES = "key_indices", "key_places", "key_counts"
_MOST_PAGE_ROWS = 65536  # a problem's limit


def lists_of_keys(arguments):
    """Returns the lists of keys among attention_kvcache()'s arguments, by name. Raises if they contradict others."""
    lists = {name: arguments[name] for name in NAMES}
    for name, tensor in lists.items():
        if tensor is not None:
            tensors.signature(name, tensor)  # refuses other types
    given = [name for name in ("key_indices", "key_places") if lists[name] is not None]
    if len(given) > 1:
        raise ValueError("key_indices and key_places are given; give one: positions in a request, or places in a cache")
    if not given:
        if lists["key_counts"] is not None:
            raise ValueError("key_counts is given without key_indices or key_places; give one of them")
        return lists
    name = given[0]
    if arguments["mask"] not in (None, "none") or arguments["is_causal"] or arguments["window"] is not None:
        raise ValueError(
            f"{name} is given with mask, is_causal or window; must be without them: {name} says which keys a row sees")
    if name == "key_places":
        others = [other for other in ("kv_lengths", "page_table", "slots", "kv_begins") if arguments[other] is not None]
        if others:
            raise ValueError(f"key_places and {others[0]} are given; give one: places need no list of keys of requests")
        others = [other for other in ("alibi_slopes", "score_mod", "mask_mod") if arguments[other] is not None]
        if others:
            raise ValueError(
                f"key_places and {others[0]} are given; give key_indices: {others[0]} depends on positions")
    return lists


def list_of(lists):
    """Returns (name, tensor) of the list that is given, or (None, None)."""
    for name in ("key_indices", "key_places"):
        if lists[name] is not None:
            return name, lists[name]
    return None, None


def _check_ints(name, tensor, q):
    check_beside(name, tensor, q)
    tensors.check_plain(name, tensor)
    if tensors.dtype_text(tensor.dtype) != "int32":
        raise ValueError(f"{name} is {tensors.dtype_text(tensor.dtype)}; must be int32")


def check_lists_of_keys(lists, q, rows, heads_kv):
    """Checks the tensors of a call that is not kept. rows: the extents of q before its heads, as the caller has them.
    """
    name, tensor = list_of(lists)
    if name is None:
        return
    _check_ints(name, tensor, q)
    shape, wanted = tuple(tensor.shape), len(rows)
    by_head = len(shape) == wanted + 2 and shape[wanted] == heads_kv
    if shape[:wanted] != rows or not (by_head or len(shape) == wanted + 1) or shape[-1] < 1:
        raise ValueError(
            f"{name} has shape {shape}; must be {list(rows)} and the length of a list, or {list(rows)}, {heads_kv} "
            f"heads of k_cache and the length, at least 1")
    if shape[-1] > 1 and tensors.element_strides(name, tensor)[-1] != 1:
        raise ValueError(f"{name} has strides {tuple(tensors.element_strides(name, tensor))}; the last must be 1")
    strides_of(lists, wanted)
    counts = lists["key_counts"]
    if counts is None:
        return
    _check_ints("key_counts", counts, q)
    if tuple(counts.shape) != rows:
        raise ValueError(f"key_counts has shape {tuple(counts.shape)}; must be {list(rows)}, a count for each row of q")
    _row_stride("key_counts", counts, wanted, 1)


def _row_stride(name, tensor, axes, must_be=None):
    """Returns the step from row to row. The rows of all requests must be equally far apart."""
    shape, strides = tensor.shape, tensors.element_strides(name, tensor)
    if axes == 1:
        found = strides[0]
    else:
        found = strides[1] if shape[1] > 1 else strides[0]
        if shape[0] > 1 and shape[1] > 1 and strides[0] != shape[1] * found:
            found = None
    rows = shape[0] if axes == 1 else shape[0] * shape[1]
    if rows > 1 and (found is None or (must_be is not None and found != must_be)):
        raise ValueError(
            f"{name} has strides {tuple(strides)}; rows must be equally far apart{'' if must_be is None else ', by 1'} "
            f"(copy the tensor)")
    return found or 0


def strides_of(lists, axes):
    """Returns the steps from row to row and from head to head of the given list. axes: 2, or 1 for packed rows."""
    name, tensor = list_of(lists)
    if name is None:
        return 0, 0
    by_head = len(tensor.shape) == axes + 2 and tensor.shape[axes] > 1
    return _row_stride(name, tensor, axes), tensors.element_strides(name, tensor)[axes] if by_head else 0


def text_of(lists):
    """Returns the part of a problem's text."""
    name, tensor = list_of(lists)
    if name is None:
        return ""
    return f",key_indices={'positions' if name == 'key_indices' else 'places'},listed_keys={tensor.shape[-1]}"


def room_of_places(k_cache, lists):
    """Returns (keys of a page, or 0 for slots; the problem's seqlen_kv) of a cache in which lists name places."""
    keys = k_cache.shape[1]
    if 0 < keys <= _MOST_PAGE_ROWS and k_cache.shape[0] != 1:
        return keys, list_of(lists)[1].shape[-1]
    return 0, keys


def v_is_in_k(k_cache, v_cache):
    """True if v is the first columns of k, in the same memory. Kernels of latent attention then read it once."""
    if not len(k_cache.shape) == len(v_cache.shape) == 4:
        return False
    if not v_cache.shape[3] < k_cache.shape[3] or tuple(v_cache.shape[:3]) != tuple(k_cache.shape[:3]):
        return False
    if tensors.address("v_cache", v_cache) != tensors.address("k_cache", k_cache):
        return False
    return tuple(tensors.element_strides("v_cache", v_cache)) == tuple(tensors.element_strides("k_cache", k_cache))


def give_lists_of_keys(cache, lists, strides):
    """Puts the lists into the struct of a call."""
    name, tensor = list_of(lists)
    if name is None:
        return
    cache.key_indices = tensors.address(name, tensor)
    cache.key_indices_row_stride, cache.key_indices_head_stride = strides
    if lists["key_counts"] is not None:
        cache.key_counts = tensors.address("key_counts", lists["key_counts"])
