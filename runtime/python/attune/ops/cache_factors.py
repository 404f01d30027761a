# SPDX-License-Identifier: Apache-2.0
"""Factors of 8-bit caches: one for all, one per head, or one per head and page or key. Factors of groups of columns of
4-bit caches. Used by kvcache.py and append.py."""
from ..core import tensors
from ..core.library import module
from ..core.operands import check_factor_tensor, factors, share_memory, span_of
from ..core.problem import check_beside
from ..core.torch_state import on_stream, stream_address

MADE, LATENT, _COLUMNS = 2, 3, {4: 16, 5: 32}  # attune_kv_factors
_CODES_OF_FACTOR = 128
_PAGES, _KEYS = "[num_pages, page_size, num_heads_kv]", "[keys of all requests, num_heads_kv]"


def _is_by_key(scale, packed):
    rank = len(getattr(scale, "shape", ()))
    return rank == 3 or (packed and rank == 2 and scale.shape[0] != 1)


def are_by_key(scales, packed_kv=False):
    """True if k_scale or v_scale has a factor per page or key."""
    return any(_is_by_key(scale, packed_kv) for scale in scales.values())


def has_latent_rows(q, k_cache, v_cache):
    """True if rows of k_cache, whose first columns are v_cache, hold codes of 8 bits, their factors, and columns of 16
    bits."""
    columns, of_v = q.shape[-1], v_cache.shape[-1]
    row_bytes = of_v + of_v // _CODES_OF_FACTOR * 4 + 2 * (columns - of_v)
    return k_cache.shape[-1] == row_bytes != columns and tensors.dtype_text(k_cache.dtype) in ("uint8", "e4m3")


def codes_of(kv_factors):
    """Returns the columns in an element of a cache."""
    return 2 if kv_factors and kv_factors.startswith("columns") else 1


def columns_of_factor(groups, key):
    """Returns the problem's kv_factors for k_factors and v_factors of a 4-bit cache, such as "columns16". None if
    neither is given. key: a tensor with the columns of k."""
    given = [name for name, tensor in groups.items() if tensor is not None]
    if not given:
        return None
    if len(given) == 1:
        raise ValueError(f"{given[0]} is given alone; give k_factors and v_factors, or neither")
    head_dim = key.shape[-1]
    found = groups["k_factors"].shape[-1] if len(groups["k_factors"].shape) else 0
    for columns in _COLUMNS.values():
        if found * columns == head_dim:
            return f"columns{columns}"
    raise ValueError(
        f"k_factors has {found} factors of a key; must be {head_dim // 16} or {head_dim // 32}, one for each 16 or 32 "
        f"of {head_dim} columns")


def bind_groups(call, cache, like, groups, given, written=False):
    """Puts k_factors and v_factors into the struct of a call's cache."""
    columns = _COLUMNS.get(call.plan.problem.kv_factors)
    if columns is None:
        return
    for name, of, head_dim in (("k_factors", "k_cache", call.plan.problem.head_dim_qk),
                               ("v_factors", "v_cache", call.plan.problem.head_dim_v)):
        tensor, places = groups[name], tuple(given[of].shape[:3])
        check_beside(name, tensor, like, "q")
        found = tensors.dtype_text(tensor.dtype)
        if found not in ("e4m3", "uint8"):
            raise ValueError(f"{name} is {found}; must be e4m3, or uint8 with the bits of e4m3")
        shape, strides = tuple(tensor.shape), tuple(tensors.element_strides(name, tensor))
        if len(shape) == 3 and places[0] == 1 and shape[0] == places[1]:  # packed keys
            shape, strides = (1, *shape), (0, *strides)
        wanted = (*places, head_dim // columns)
        if shape != wanted:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; must be {wanted}, {of}'s with a factor for each "
                             f"{columns} columns")
        if strides[3] != 1 and wanted[3] > 1:
            raise ValueError(f"{name} has stride {strides[3]} in its last axis; must be 1")
        page, key, head = (stride if steps > 1 else 0 for stride, steps in zip(strides[:3], shape))
        setattr(cache, name, module.Tensor(tensors.address(name, tensor, written), page, key, head))


def refuse_beside_wide(scales, cache):
    """Raises if factors are given for a cache of more than 8 bits."""
    found = tensors.dtype_text(cache.dtype)
    for name, scale in scales.items():
        if scale is not None and found in ("fp32", "bf16", "fp16"):
            raise ValueError(f"{name} is given, and the cache is {found}; only caches of 8 or 4 bits have factors")


def _view_of_keys(name, tensor, cache, like, target, packed, written):
    """Returns the struct and the Extent. cache: in the kernels' form, [num_pages, page_size, num_heads_kv, head_dim] or
    [1, keys, ..]."""
    check_factor_tensor(name, tensor, like, target)
    pages, keys, heads = cache.shape[:3]
    if packed and len(tensor.shape) != 2:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; must be [], [1, num_heads_kv] or {_KEYS}, since there are no "
            f"pages")
    shape = (1, *tensor.shape) if packed else tuple(tensor.shape)
    strides = (0,) * (3 - len(tensor.shape)) + tuple(tensors.element_strides(name, tensor))
    if written and shape != (pages, keys, heads):
        raise ValueError(
            f"{name} has shape {shape}, and the call writes it; must be {(pages, keys, heads)}, [num_pages, page_size, "
            f"num_heads_kv]")
    if shape[0] not in (1, pages) or shape[1] not in (1, keys) or shape[2] == 0 or heads % shape[2]:
        accepted = f"{_KEYS}, ({keys}, {heads})" if packed else \
            f"{_PAGES}, {(pages, keys, heads)}, or slots and their keys"
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; must be {accepted}. Axes of 1 broadcast, and the last "
            f"axis may be a divisor of the number of heads")
    page, key, head = (stride if steps > 1 else 0 for stride, steps in zip(strides, shape))
    return module.Scale(tensors.address(name, tensor), page, head, key, heads // shape[2]), span_of(
        name, tensor, shape, strides)


def _by_key(name, scale, cache, like, target, packed, written):
    """Returns (tensor, struct, Extent) of an operand's factors for a kernel that reads a factor per key. Factors with
    fewer axes broadcast."""
    if packed and len(getattr(scale, "shape", ())) == 2 and scale.shape[0] == 0:
        scale = 1.0  # without keys no kernel reads the factor
    if _is_by_key(scale, packed):
        return (scale, *_view_of_keys(name, scale, cache, like, target, packed, written))
    tensor, view, extent = factors(name, scale, like, 1, cache.shape[2], 1, target)
    if tensor is None:  # the factor is the number 1, but these kernels read a tensor
        tensor = tensors.empty(like, (1, 1), tensors.native_dtype(like, "fp32"))
        tensors.fill(tensor, 1)
        _, view, extent = factors(name, tensor, like, 1, cache.shape[2], 1, target)
    return tensor, view, extent


def _refuse_other_shapes(name, scale, heads):
    """Raises unless the factors are one number, or one per head."""
    shape = getattr(scale, "shape", ())
    if len(shape) not in (0, 2) or (len(shape) == 2 and (shape[0] != 1 or shape[1] == 0 or heads % shape[1])):
        raise ValueError(
            f"{name} has shape {tuple(shape)}; must be [], [1, num_heads_kv] for {heads} heads or a divisor of them, "
            f"or {_PAGES} (or [slots, keys, num_heads_kv]). Axes of 1 broadcast")


def bind_factors(call, operands, like, scales, given, written, packed_kv=False, others=None):
    """Gives the call k_scale and v_scale. Returns tensors that must live until the call is enqueued.

    written: addresses of the operands that the call writes, by name. They must not share memory with factors; only
    factors per key may be stored between the rows of their cache. others: addresses of operands that must not share
    memory with factors that the call itself makes."""
    p, kept = call.plan.problem, []
    if p.kv_factors == LATENT:
        for name, scale in scales.items():
            if scale is not None:
                raise ValueError(f"{name} is given; must be None, because the rows of k_cache hold their factors")
        return kept
    places = {name: (at, call.extents[name]) for name, at in (others or {}).items() if name in call.extents}
    is_narrow = tensors.DTYPES[p.dtype_kv] in tensors.NARROW_NAMES
    for name, scale in scales.items() if is_narrow else ():
        with on_stream(call.plan.ordinal, stream_address(None, call.plan.ordinal)):
            if _COLUMNS.get(p.kv_factors) and scale is None:
                continue  # the factors of groups of columns suffice
            if p.kv_factors and p.kv_factors not in _COLUMNS:
                cache = given["k_cache" if name == "k_scale" else "v_cache"]
                tensor, view, extent = _by_key(name, scale, cache, like, call.plan.target, packed_kv,
                                               p.kv_factors == MADE)
            else:
                _refuse_other_shapes(name, scale, p.num_heads_kv)
                tensor, view, extent = factors(name, scale, like, 1, p.num_heads_kv, 1, call.plan.target)
        setattr(operands, name, view)
        if tensor is None:
            continue
        kept.append(tensor)
        if p.kv_factors == MADE:
            places[name] = (view.data or 0, extent)
            for other, (at, place) in places.items():
                if other != name and share_memory(view.data or 0, extent, at or 0, place):
                    raise ValueError(
                        f"{name} and {other} overlap in memory; the call writes {name}, which must have memory of its "
                        f"own")
        for other, at in written.items():
            inline = p.kv_factors and p.kv_factors not in _COLUMNS and other in ("k_cache", "v_cache")
            if not inline and share_memory(at or 0, call.extents[other], view.data or 0, extent):
                raise ValueError(f"{other} and {name} overlap in memory; {other} must have memory of its own")
    return kept
