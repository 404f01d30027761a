# SPDX-License-Identifier: Apache-2.0
"""Converts a call of attention() to attune.h's problem text: masks, windows, scales and shapes as Python users write
them. Raises if they do not fit. Used by ops/attention.py and ops/quantise.py."""
import math
import operator
import struct

from . import tensors
from .flags import flag
from .torch_state import refuse_gradients

MASKS = ("none", "causal", "causal_top_left", "causal_bottom_right")
_ACCEPTED_MASKS = f"None, {', '.join(repr(mask) for mask in MASKS)} (and window= for a window); others have no kernel"


def word(name, value):
    """Returns the value. Raises unless it is one word: then it cannot add keys to a problem's text. The library checks
    the word."""
    if not isinstance(value, str) or not value.isascii() or not value.isidentifier():
        raise ValueError(f"{name} is {value!r}; must be one word")
    return value


def whole(name, value):
    """Returns an int; takes NumPy's too, and a tensor of no dimensions. Bools are refused, also those of tensors."""
    try:
        if type(value) is int:
            return operator.index(value)  # makes constants of torch.compile's symbols
        if not isinstance(value, bool) and tuple(getattr(value, "shape", ())) == () and "bool" not in str(
                getattr(value, "dtype", "")):
            return operator.index(value)
    except TypeError:
        pass
    raise ValueError(f"{name} is {value!r}; must be a whole number")


def whole_or_none(name, value):
    """Returns None for None, else whole()'s number."""
    return None if value is None else whole(name, value)


def real(name, value):
    """Returns a float for any real number: NumPy's, a fraction, or a tensor of no dimensions."""
    if type(value) is float:
        return value
    shape = getattr(value, "shape", ())
    if not isinstance(value, (bool, str, bytes)) and tuple(shape) == () and not any(
            kind in str(getattr(value, "dtype", "")) for kind in ("bool", "complex")):
        refuse_gradients([(name, value)])
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise ValueError(f"{name} is {value!r}; must be a real number")


def in_fp32(number):
    """Returns the float rounded to fp32; an infinity if it is beyond fp32's range."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def softmax_scale(scale):
    """Returns None, or a float that fits into float32."""
    if scale is None:
        return None
    number = real("scale", scale)
    if not 0 < in_fp32(number) < math.inf:
        raise ValueError(f"scale is {number}; must be above 0 and within float32, or None for 1 / sqrt(head_dim)")
    return number


def causal_flag(is_causal):
    """Returns is_causal as a flag; None is False."""
    return is_causal is not None and flag("is_causal", is_causal)


def mask_name(mask, is_causal, seqlen_q, seqlen_kv):
    """Returns the library's name of a mask. "causal" does not tell the alignment of unequal lengths, so it needs equal
    ones."""
    if mask is None:
        mask = "none"
    if type(mask) is not str:
        raise ValueError(
            f"mask is of type {type(mask).__name__}; must be {_ACCEPTED_MASKS} (is_causal=True means 'causal')")
    if causal_flag(is_causal):
        if mask not in ("none", "causal"):
            raise ValueError(f"mask is {mask!r} and is_causal is True; give one of the two")
        mask = "causal"
    if mask != "causal":
        if mask not in MASKS:
            raise ValueError(f"mask is {mask!r}; must be {_ACCEPTED_MASKS}")
        return mask
    if seqlen_q != seqlen_kv:
        raise ValueError(
            f"mask is causal, with {seqlen_q} queries and {seqlen_kv} keys; must be 'causal_bottom_right' (the last "
            "query sees all keys, as in FlashAttention) or 'causal_top_left' (query i sees keys 0 to i, as PyTorch's "
            "is_causal)")
    return "causal_bottom_right"


def cache_mask(mask, is_causal):
    """Returns the mask for attention over a cache, or None.

    There the last row of a request is at its last key, so `is_causal` means causal_bottom_right."""
    if mask_name(mask, is_causal, 0, 0) == "none":
        return None
    return "causal_bottom_right" if causal_flag(is_causal) else mask


def window_sides(window):
    """Returns (left, right) as ints, -1 for an open side."""
    if window is None:
        return -1, -1
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ValueError(
            f"window is {window!r}; must be a pair (left, right): keys visible on each side of the diagonal, None for "
            "all. A causal sliding window of W keys is (W - 1, 0)")
    sides = tuple(-1 if side is None else whole("window", side) for side in window)
    if min(sides) < -1:
        raise ValueError(f"window is {window!r}; sides must be at least 0, or -1 or None for an open side")
    return sides


def scale_blocks(scale_block):
    """Returns the pair (scale_block of q, scale_block of k and v)."""
    if not isinstance(scale_block, (tuple, list)):
        return (whole("scale_block", scale_block),) * 2
    if len(scale_block) != 2:
        raise ValueError(f"scale_block is {scale_block!r}; must be a number or a pair (of q, of k and v)")
    return tuple(whole("scale_block", block) for block in scale_block)


def v_layout_of(v_layout):
    if not isinstance(v_layout, str) or v_layout not in ("rows", "transposed"):
        raise ValueError(f"v_layout is {v_layout!r}; must be 'rows' or 'transposed'")
    return tensors.TRANSPOSED if v_layout == "transposed" else tensors.ROWS


def check_beside(name, tensor, like, name_of_like="q"):
    """Raises unless the tensor is of the same library, and on the same device, as another."""
    if not (tensors.is_torch(tensor) or tensors.is_numpy(tensor)):
        tensors.refuse_kind(name, tensor)
    if tensors.is_torch(tensor) != tensors.is_torch(like):
        raise ValueError(
            f"{name} is {tensors.kind_text(tensor)} and {name_of_like} is {tensors.kind_text(like)}; both must be of "
            f"one library")
    if tensors.target_of(tensor) != tensors.target_of(like):
        raise ValueError(
            f"{name} is on {tensors.target_of(tensor)} and {name_of_like} is on {tensors.target_of(like)}; both must "
            f"be on one device")


def _dtypes(q, k, v, dtype, dtype_kv):
    """Returns the dtypes of q, and of k and v. Only 8-bit types may differ between them."""
    own = tensors.dtype_name(q, dtype)
    if own not in tensors.DTYPES:
        raise ValueError(f"q is {own}; must be one of {', '.join(tensors.DTYPES)}")
    found = []
    for name, tensor in (("k", k), ("v", v)):
        fallback = dtype if tensors.dtype_text(tensor.dtype) == "uint8" else None
        given, argument = (fallback, "dtype") if dtype_kv is None else (dtype_kv, "dtype_kv")
        found.append(tensors.dtype_name(tensor, given, name, argument))
        if found[-1] != own and not (own in tensors.FP8_NAMES and found[-1] in tensors.FP8_NAMES):
            raise ValueError(f"{name} is {found[-1]} and q is {own}; both must be of one dtype" +
                             (", or e4m3 and e5m2" if own in tensors.FP8_NAMES else ""))
    if found[0] != found[1]:
        raise ValueError(f"v is {found[1]} and k is {found[0]}; both must be of one dtype")
    return own, found[0]


def _check_shapes(q, k, v, layout):
    """Raises if shapes do not fit each other. The message has a hint if they would fit as [batch, num_heads, seqlen,
    head_dim]."""
    batch, _, heads_q, head_dim = q.shape
    rows, heads = k.shape[1:3]
    wanted_v = (batch, rows, heads, v.shape[3]) if layout == tensors.ROWS else (batch, heads, v.shape[2], rows)
    wrong = None
    if (k.shape[0], k.shape[3]) != (batch, head_dim):
        wrong = f"k has shape {tuple(k.shape)} and q {tuple(q.shape)}; batch and head_dim must be equal"
    elif tuple(v.shape) != wanted_v:
        wrong = f"v has shape {tuple(v.shape)} and k {tuple(k.shape)}; v must be {wanted_v}"
    elif heads < 1 or heads_q % heads:
        wrong = f"q has {heads_q} heads and k has {heads}; k's must divide q's"
    if wrong is None:
        return
    turned = k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0 and v.shape[1:3] == k.shape[1:3]
    hint = ". For [batch, num_heads, seqlen, head_dim] give x.transpose(1, 2)" if turned and layout == tensors.ROWS \
        else ""
    raise ValueError(f"{wrong} (shapes are {tensors.DIMENSIONS[tensors.ROWS]}{hint})")


def _out_name(q, name, out_dtype):
    """Returns out's dtype: bf16 for 8-bit operands, or fp16 for NumPy, which has no bf16."""
    if out_dtype is not None:
        found = word("out_dtype", tensors.dtype_text(out_dtype))
        tensors.native_dtype(q, found, "out_dtype")  # refuses other words
        return found
    return name if name not in tensors.FP8_NAMES else "bf16" if tensors.is_torch(q) else "fp16"


def problem_text(q, k, v, mask=None, window=None, scale=None, *, is_causal=False, dtype=None, dtype_kv=None,
                 out_dtype=None, accuracy="accurate", v_layout="rows", scale_block=0):
    """Returns the problem of these operands in attune's text form, for Context.plan() and `attune tune --problem`.
    Operands and keywords are those of attention(). Raises ValueError or TypeError if they do not fit."""
    layout = v_layout_of(v_layout)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_beside(name, tensor, q)
        tensors.check_plain(name, tensor)
        tensors.check_rank(name, tensor, tensors.DIMENSIONS[layout if name == "v" else tensors.ROWS])
    name, name_kv = _dtypes(q, k, v, dtype, dtype_kv)
    _check_shapes(q, k, v, layout)
    batch, seqlen_q, heads_q, head_dim_qk = q.shape
    seqlen_kv, heads_kv = k.shape[1:3]
    left, right = window_sides(window)
    text = (
        f"dtype={name},head_dim_qk={head_dim_qk},head_dim_v={v.shape[3 if layout == tensors.ROWS else 2]},"
        f"heads={heads_q}/{heads_kv},batch={batch},seqlen_q={seqlen_q},seqlen_kv={seqlen_kv},"
        f"mask={mask_name(mask, is_causal, seqlen_q, seqlen_kv)}")
    if left >= 0 or right >= 0:
        text += f",window={'-' if left < 0 else left}:{'-' if right < 0 else right}"
    block_q, block_kv = scale_blocks(scale_block)
    out = _out_name(q, name, out_dtype)
    if name in tensors.FP8_NAMES or out != name or (accuracy, v_layout, block_q, block_kv) != ("accurate", "rows", 0,
                                                                                               0):
        text += (
            f",dtype_kv={name_kv},dtype_o={out},accuracy={word('accuracy', accuracy)},v_layout={v_layout},"
            f"scale_block_q={block_q},scale_block_kv={block_kv}")
    number = softmax_scale(scale)
    return text if number is None else f"{text},scale={number!r}"
