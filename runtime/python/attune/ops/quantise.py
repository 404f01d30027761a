# SPDX-License-Identifier: Apache-2.0
"""quantise(): makes 8-bit tensors and their factors for attention() in attention.py."""
from ..core import tensors
from ..core.operands import extent_of
from ..core.problem import v_layout_of, whole, word
from ..core.torch_state import in_graphs, needs_op, profiled, refuse_gradients, untraced
from .call import Call, Operand, check_new, kept_call
from .context import context_of

_OPERANDS = Operand("x", "q"), Operand("tensor", "o"), Operand("scale", "o_scale")


def _padded(extent):
    return -(-extent // 16) * 16  # rows of 8-bit tensors begin at 16 bytes


def _make_call(context, x, dtype, scale_block, rotation, v_layout):
    check_new("quantise", {"x": x}, "x")
    tensors.check_rank("x", x, tensors.DIMENSIONS[tensors.ROWS])
    own = tensors.dtype_text(x.dtype)
    if own not in ("fp32", "bf16", "fp16"):
        raise ValueError(f"x is {own}; must be fp32, bf16 or fp16")
    batch, seqlen, heads, head_dim = x.shape
    layout = v_layout_of(v_layout)
    inner = head_dim if layout == tensors.ROWS else seqlen
    out_shape = (batch, seqlen, heads, _padded(inner)) if layout == tensors.ROWS else (batch, heads, head_dim,
                                                                                       _padded(inner))
    out_dtype, blocks = tensors.native_dtype(x, dtype), tensors.num_blocks(seqlen, scale_block)
    problem = (
        f"op=quantise,dtype={own},dtype_o={dtype},head_dim={head_dim},heads={heads},batch={batch},seqlen={seqlen},"
        f"scale_block={scale_block},rotation={word('rotation', rotation)},v_layout={v_layout}")
    o = tensors.empty(x, out_shape, out_dtype)[..., :inner]
    strides = (tensors.layout_strides("x", x), (0, 0, 0), (0, 0, 0), tensors.layout_strides("tensor", o, layout))
    plan = context.plan_with_strides(problem, strides)
    extents = {"x": extent_of("x", x, tuple(x.shape), own, plan.target, x), "tensor": None, "scale": None}
    # inner: the visible part of out's padded last dimension.
    return Call(plan, _OPERANDS, extents, dict(tensor=strides[3], scale=(heads * blocks, blocks)), inner=inner,
                out_shape=out_shape, out_dtype=out_dtype, scale_shape=(batch, heads, blocks),
                scale_dtype=tensors.native_dtype(x, "fp32"))


def _call_of(context, x, dtype, scale_block, rotation, v_layout):
    dtype, scale_block = word("dtype", tensors.dtype_text(dtype)), whole("scale_block", scale_block)
    key = ("quantise", tensors.signature("x", x), dtype, scale_block, word("rotation", rotation), v_layout_of(v_layout))
    if dtype not in tensors.FP8_NAMES:
        raise ValueError(f"dtype is {dtype}; must be {' or '.join(tensors.FP8_NAMES)}")
    context = context_of(context, tensors.check_device("x", x))
    return kept_call(context, key, lambda: _make_call(context, x, dtype, scale_block, rotation, v_layout))


@in_graphs("quantise")
@untraced
@profiled
def quantise(x, dtype="e4m3", scale_block=0, rotation="none", v_layout="rows", *, context=None):
    """Returns x in 8 bits and its factors: x = tensor * scale, up to rounding.

    x: [batch, seqlen, num_heads, head_dim] in bf16, fp16 or fp32. dtype: "e4m3" or "e5m2". scale_block: rows of a head
    that share a factor, a multiple of 16; 0: all rows of a head.
    rotation: "hadamard" first multiplies each row by the orthonormal Hadamard matrix (head_dim must be a power of two).
    Rotate q and k alike: q k^T stays the same, while outliers spread over the row.
    v_layout: "transposed" for a v whose keys are contiguous. context: as in attention().

    Returns (tensor, scale). tensor has x's shape, or [batch, num_heads, head_dim, seqlen] if transposed; uint8 for
    NumPy arrays. Its rows begin at multiples of 16 bytes. scale: float32 [batch, num_heads], or [batch, num_heads,
    blocks] with scale_block; give it to attention() with the tensor. Has no gradients.
    Raises ValueError or TypeError if arguments do not fit, and attune.Error if the library refuses the call."""
    graph = needs_op(x, autocast=False, named=("x",))
    if graph is not None:
        return graph.quantise(x, dtype, scale_block, rotation, v_layout, context=context)
    refuse_gradients([("x", x)])
    call = _call_of(context, x, dtype, scale_block, rotation, v_layout)
    o = tensors.empty(x, call.out_shape, call.out_dtype)[..., :call.inner]
    scale = tensors.empty(x, call.scale_shape, call.scale_dtype)
    operands, at = call.bind(dict(x=x, tensor=o, scale=scale), fresh=True)
    if at["x"] is None:
        tensors.fill(scale, 1.0)  # there are no elements
    else:
        call.run(operands)
    return o, (scale if scale_block > 0 else scale[..., 0])
