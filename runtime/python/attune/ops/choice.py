# SPDX-License-Identifier: Apache-2.0
"""index_scores() and top_k(): choose the keys that each row of queries sees. attention_kvcache() takes the lists."""
import sys

from ..core import tensors
from ..core.operands import ALIGNMENT, extent_of
from ..core.problem import check_beside, whole, word
from ..core.torch_state import profiled, refuse_gradients, refuse_recording, untraced
from .call import Call, Operand, check_new, kept_call, key_of
from .context import context_of

_TOP_K = (
    Operand("scores", "q"), Operand("lengths", "v_scale"), Operand("indices", "o", written=True),
    Operand("counts", "lse", written=True))
_INDEX_SCORES = (
    Operand("q", "q"), Operand("k", "k"), Operand("weights", "q_scale"), Operand("k_scale", "k_scale"),
    Operand("lengths", "v_scale"), Operand("scores", "o", written=True))


def _padded(like, shape, dtype):
    """Returns a new tensor whose rows begin at multiples of 16 bytes."""
    step = ALIGNMENT // (4 if tensors.dtype_text(dtype) in ("fp32", "int32") else 2)
    return tensors.empty(like, (*shape[:-1], -(-shape[-1] // step) * step), dtype)[..., :shape[-1]]


def _aligned(name, tensor):
    """Returns the tensor, or a copy if kernels cannot read its rows."""
    strides, shape, item = tensors.element_strides(name, tensor), tensor.shape, tensors.item_bytes(tensor)
    steps = [stride for extent, stride in zip(shape, strides[:-1]) if extent > 1]
    if (shape[-1] < 2 or strides[-1] == 1) and (tensors.address(name, tensor) or 0) % ALIGNMENT == 0 and all(
            step >= 0 and step * item % ALIGNMENT == 0 for step in steps):
        return tensor
    copy = _padded(tensor, shape, tensor.dtype)
    copy[...] = tensor
    return copy


def _int32(like):
    return sys.modules["torch"].int32 if tensors.is_torch(like) else "int32"


def _of_rows(name, tensor, shape, dtype, words):
    """Returns a contiguous tensor with a number for each row; None stays None."""
    if tensor is None:
        return None
    tensors.signature(name, tensor)  # refuses other types
    if tensors.dtype_text(tensor.dtype) != dtype:
        raise ValueError(f"{name} is {tensors.dtype_text(tensor.dtype)}; must be {dtype}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; must be {shape}, {words}")
    if tensors.is_torch(tensor):
        return tensor.contiguous()
    return tensor if tensor.flags.c_contiguous else tensor.copy()


def _mask(mask):
    return word("mask", "none" if mask is None else mask)


def _text(op, dtype, heads, batch, seqlen_q, seqlen_kv, mask):
    return (f"op={op},dtype={dtype},heads={heads},batch={batch},seqlen_q={seqlen_q},seqlen_kv={seqlen_kv},"
            f"mask={mask}")


def _make_top_k(context, given, length, mask):
    check_new("top_k", given, "scores")
    scores = given["scores"]
    dtype = tensors.dtype_text(scores.dtype)
    if dtype not in ("fp32", "bf16", "fp16"):
        raise ValueError(f"scores is {dtype}; must be fp32, bf16 or fp16")
    batch, rows, heads, keys = shape = tuple(scores.shape)
    strides = tensors.layout_strides("scores", scores)
    out = tensors.layout_strides("indices", given["indices"])
    problem = f"{_text('top_k', dtype, heads, batch, rows, keys, mask)},listed_keys={length}"
    plan = context.plan_with_strides(problem, [strides, (0, 0, 0), (0, 0, 0), out])
    extents = {name: None for name, tensor in given.items() if tensor is not None}
    extents["scores"] = extent_of("scores", scores, shape, dtype, plan.target, scores)
    return Call(plan, _TOP_K, extents, dict(indices=out, lengths=(rows, 0)))


@untraced
@profiled
def top_k(scores, k, lengths=None, *, mask=None, context=None):
    """Returns the indices of the k largest scores of each row, in ascending order, and their numbers.

    scores: [seqlen_q, seqlen_kv], [batch, seqlen_q, seqlen_kv] or [batch, seqlen_q, num_heads, seqlen_kv] in fp32, bf16
    or fp16. Rows that do not begin at multiples of 16 bytes are copied first; those of index_scores() do.
    lengths: int32 [seqlen_q] or [batch, seqlen_q]: a row sees only the keys below its length. mask, context: as in
    attention().

    The result is exact. Of equal scores the lower index is chosen. A key with the score -inf is never chosen. NaN is
    above all numbers. 0 and -0 are equal.
    Returns (indices, counts): int32 with the axes of scores and k in the place of seqlen_kv, filled up with -1; and
    int32 without this axis. They fit key_indices and key_counts of attention_kvcache(). Has no gradients.
    Raises ValueError or TypeError if arguments do not fit. Before a CUDA graph's capture, call prepare(top_k, ...)."""
    refuse_recording("top_k()")
    tensors.signature("scores", scores)  # refuses other types
    refuse_gradients([("scores", scores)])
    rank, length, mask = len(scores.shape), whole("k", k), _mask(mask)
    if rank not in (2, 3, 4):
        raise ValueError(f"scores has {rank} dimensions, shape {tuple(scores.shape)}; must be [seqlen_q, seqlen_kv], "
                         "[batch, seqlen_q, seqlen_kv] or [batch, seqlen_q, num_heads, seqlen_kv]")
    if length < 1:
        raise ValueError(f"k is {length}; must be at least 1")
    rows = tuple(scores.shape[:min(rank - 1, 2)])
    lengths = _of_rows("lengths", lengths, rows, "int32", "a number of keys for each row of scores")
    context = context_of(context, tensors.check_device("scores", scores))
    whole_scores = scores if rank == 4 else scores[None, :, None] if rank == 2 else scores[:, :, None]
    whole_scores = _aligned("scores", whole_scores)
    batch, seqlen_q, heads, keys = whole_scores.shape
    indices = _padded(scores, (batch, seqlen_q, heads, length), _int32(scores))
    counts = tensors.empty(scores, (batch, heads, seqlen_q), _int32(scores))
    given = dict(scores=whole_scores, lengths=lengths, indices=indices, counts=counts)
    key = ("top_k", *key_of(dict(scores=whole_scores, lengths=lengths)), length, mask)
    call = kept_call(context, key, lambda: _make_top_k(context, given, length, mask))
    operands, at = call.bind({name: tensor for name, tensor in given.items() if tensor is not None}, fresh=True)
    if at["scores"] is None:  # there are no elements
        tensors.fill(indices, -1), tensors.fill(counts, 0)
    else:
        call.run(operands)
    if rank == 4:
        return indices, counts.transpose(1, 2) if tensors.is_torch(counts) else counts.transpose(0, 2, 1)
    indices, counts = indices[:, :, 0], counts[:, 0]
    return (indices[0], counts[0]) if rank == 2 else (indices, counts)


def _make_index_scores(context, given, dtype, mask):
    check_new("index_scores", given, "q")
    q, k, scores = given["q"], given["k"], given["scores"]
    for name, tensor in (("q", q), ("k", k)):
        extent = tuple(tensor.shape)
        if len(extent) != 4 or extent[0] != q.shape[0] or extent[3] != q.shape[3]:
            raise ValueError(f"{name} has shape {extent}; must be {tensors.DIMENSIONS[tensors.ROWS]} with q's batch, "
                             f"{q.shape[0]}, and head_dim, {q.shape[3]}")
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_kv, heads_kv = k.shape[1:3]
    text = _text("index_scores", dtype, f"{heads}/{heads_kv}", batch, seqlen_q, seqlen_kv, mask)
    strides = [tensors.layout_strides(name, given[name]) for name in ("q", "k", "scores")]
    plan = context.plan_with_strides(f"{text},dtype_o=fp32,head_dim={head_dim}", [*strides[:2], (0, 0, 0), strides[2]])
    extents = {name: None for name, tensor in given.items() if tensor is not None}
    for name in ("q", "k"):
        extents[name] = extent_of(name, given[name], tuple(given[name].shape), dtype, plan.target, q)
    steps = dict(scores=strides[2], weights=(seqlen_q * heads, 1, heads), k_scale=(seqlen_kv * heads_kv, 1, heads_kv),
                 lengths=(seqlen_q, 0))
    return Call(plan, _INDEX_SCORES, extents, steps)


@untraced
@profiled
def index_scores(q, k, weights, lengths=None, *, k_scale=None, mask=None, dtype=None, context=None):
    """Returns the scores by which an indexer chooses keys, as in DeepSeek V3.2: for each row and key, the sum over the
    heads of weight * max(0, q k).

    q: [batch, seqlen_q, num_heads, head_dim], k: [batch, seqlen_kv, num_heads_kv, head_dim], in fp32, bf16, fp16 or
    e4m3. num_heads_kv must divide num_heads, and is mostly 1. weights: fp32 [batch, seqlen_q, num_heads]; they contain
    the factors of an 8-bit q, and any scale. k_scale: fp32 [batch, seqlen_kv, num_heads_kv], or [batch, seqlen_kv] for
    one head: factors above 0 of 8-bit keys, which multiply the sum; None: 1.
    lengths, mask and context: as in top_k(). dtype: the type of uint8 arrays, "e4m3".

    Returns fp32 [batch, seqlen_q, num_heads_kv, seqlen_kv], without the axis of heads if there is one; -inf where a key
    is hidden. Rows begin at multiples of 16 bytes. Has no gradients.
    Raises ValueError or TypeError if arguments do not fit. Before a CUDA graph's capture, call
    prepare(index_scores, ...)."""
    refuse_recording("index_scores()")
    for name, tensor in (("q", q), ("k", k)):
        tensors.signature(name, tensor)  # refuses other types
        tensors.check_rank(name, tensor, tensors.DIMENSIONS[tensors.ROWS])
    refuse_gradients([("q", q), ("k", k), ("weights", weights)])
    own, mask = tensors.dtype_name(q, dtype), _mask(mask)
    batch, seqlen_q, heads = tuple(q.shape[:3])
    seqlen_kv, heads_kv = tuple(k.shape[1:3])
    if weights is None:
        raise TypeError("weights is None; must be fp32 [batch, seqlen_q, num_heads]")
    weights = _of_rows("weights", weights, (batch, seqlen_q, heads), "fp32", "[batch, seqlen_q, num_heads]")
    if k_scale is not None and len(getattr(k_scale, "shape", ())) == 2:
        k_scale = k_scale[..., None]
    k_scale = _of_rows("k_scale", k_scale, (batch, seqlen_kv, heads_kv), "fp32", "[batch, seqlen_kv, num_heads_kv]")
    if k_scale is not None and own not in tensors.FP8_NAMES:
        raise ValueError(f"k_scale is given and k is {own}; must be None unless k has 8 bits")
    lengths = _of_rows("lengths", lengths, (batch, seqlen_q), "int32", "a number of keys for each row of q")
    context = context_of(context, tensors.check_device("q", q))
    scores = _padded(q, (batch, seqlen_q, heads_kv, seqlen_kv), tensors.native_dtype(q, "fp32"))
    read = dict(q=q, k=k, weights=weights, k_scale=k_scale, lengths=lengths)
    given = dict(read, scores=scores)
    call = kept_call(context, ("index_scores", *key_of(read), own, mask),
                     lambda: _make_index_scores(context, given, own, mask))
    operands, at = call.bind({name: tensor for name, tensor in given.items() if tensor is not None}, fresh=True)
    if at["scores"] is not None:
        call.run(operands)
    return scores[:, :, 0] if heads_kv == 1 else scores
