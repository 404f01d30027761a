# SPDX-License-Identifier: Apache-2.0
"""score_gradient(): gradients of a bias, of a table of distances, of ALiBi's slopes and of sinks. As _backward.py, whose call it makes with another
problem and output. _autograd.py calls it for PyTorch's autograd."""
from ._attention import choices_of
from ._backward import FEATURES, bind_call, check_like_o, check_ranks, make_call, readable, readable_dlse
from ._context import context_of
from ._padding import is_between, widened, widened_arguments
from ._problem import check_beside, word
from ._scores import scores_of
from ._torch import in_graphs, needs_op, refuse_gradients, stream_address, untraced
from . import _tensors as tensors

# Of each: the problem's word, the letters of `repeats` for its axes.
LEARNED = {"bias": ("bias", "bhqk"), "relative_bias": ("relative_bias", "h"), "alibi_slopes": ("alibi", "bh"), "sinks": ("sinks", "")}
_FLOATS = 4  # in 16 bytes: lines of a gradient begin at multiples of these


def _whole(shape, rank):
    """With axes of 1 for those that are missing in front."""
    return (1,) * (rank - len(shape)) + tuple(shape)


def _axes(name, tensor, q, k):
    """Extents of the tensor's axes, and those of a call."""
    batch, rows, heads, keys = q.shape[0], q.shape[1], q.shape[2], k.shape[1]
    wanted = {"bias": (batch, heads, rows, keys), "relative_bias": (heads, max(rows + keys - 1, 0)), "alibi_slopes": (batch, heads), "sinks": (heads,)}[name]
    if len(tensor.shape) > len(wanted):
        raise ValueError(f"{name} has {len(tensor.shape)} dimensions; accepted are at most {len(wanted)}")
    return _whole(tensor.shape, len(wanted)), wanted


def _memory(name, extents, wanted, q):
    """New memory for the gradient as the library writes it, [batch, rows, heads, columns], and a function that gives it the tensor's axes."""
    columns = extents[-1] if name == "bias" else wanted[-1] if name != "alibi_slopes" else extents[-1]
    padded = -(-columns // _FLOATS) * _FLOATS
    made = tensors.empty(q, (*(extents[:-1]), padded), tensors.native_dtype(q, "fp32"))
    line = made[..., :columns]
    if name == "bias":
        return (line.permute(0, 2, 1, 3) if tensors.is_torch(line) else line.transpose(0, 2, 1, 3)), line
    if name == "relative_bias":
        return line[None, None], line
    if name == "alibi_slopes":
        return line[:, None, None], line
    return line[None, None, None], line


def _summed(line, extents, shape):
    """The sum over axes that the tensor repeats and the library's gradient does not."""
    axes = tuple(axis for axis, (found, extent) in enumerate(zip(line.shape, extents)) if found != extent)
    for axis in axes:
        line = line.sum(axis, keepdim=True) if hasattr(line, "dim") else line.sum(axis, keepdims=True)
    return line.reshape(shape)


def _padded(name, given, dlse, choices):
    q, v = given["q"], given["v"]
    wide = widened_arguments({"out": None, "pad_head_dim": None, "scale": None, **choices, **{x: given[x] for x in "qkv"}})
    wide_o, wide_dout = (widened(x, check_like_o(x, given[x], q, v), q) for x in ("o", "dout"))
    return score_gradient_checked(name, wide_dout, wide["q"], wide["k"], wide["v"], wide_o, given["lse"], dlse=dlse, **{**choices, "scale": wide["scale"]})


def score_gradient_checked(name, dout, q, k, v, o, lse, *, dlse=None, mask=None, window=None, scale=None, is_causal=False, accuracy="accurate", context=None,
                           block_map=None, pad_head_dim=None, **features):
    """score_gradient() of tensors with memory, without history."""
    if name not in LEARNED:
        raise ValueError(f"of is {name!r}; accepted are {', '.join(LEARNED)}")
    word("accuracy", accuracy)
    for keyword in features:
        if keyword not in FEATURES:
            raise TypeError(f"score_gradient() has no keyword {keyword}; accepted are {', '.join(FEATURES)} and those that its text names")
    tensor = features.get(name)
    if tensor is None:
        raise ValueError(f"of is {name!r}, and {name} is not given; accepted is what attention() was given")
    given = dict(dout=dout, q=q, k=k, v=v, o=o, lse=lse)
    keywords = dict(mask=mask, window=window, scale=scale, is_causal=is_causal)
    for each, x in given.items():
        tensors.signature(each, x)
        check_beside(each, x, q)
    if is_between(q, k, v):
        return _padded(name, given, dlse, {**keywords, "context": context, "block_map": block_map, "pad_head_dim": pad_head_dim, **features})
    tensors.check_rank("dout", dout, tensors.DIMENSIONS[tensors.ROWS])
    check_ranks(q, k, v)
    scores = scores_of(block_map=block_map, **features)
    extents, wanted = _axes(name, tensor, q, k)
    letters = "".join(letter for letter, found, extent in zip(LEARNED[name][1], extents, wanted) if found == 1 and extent != 1)
    output, line = _memory(name, extents, wanted, q)
    given.update(dout=readable(dout, q), dlse=readable_dlse(dlse, q), dscores=output)
    if 0 in output.shape:
        return tensors.empty(q, tuple(tensor.shape), tensor.dtype)
    asked = f"score_gradient={LEARNED[name][0]}" + (f",repeats={letters}" if letters else "")
    key = ("score gradient", asked, *(None if x is None else tensors.signature(each, x) for each, x in given.items()), choices_of(**keywords), scores.key)
    context = context_of(context, tensors.check_device("q", q))
    call = context.recent.find(key)
    if call is None:
        call = make_call(context, given, asked, keywords, scores)
        context.recent.keep(key, call)
    operands, _ = bind_call(call, given)
    kept = scores.give(operands, call.plan)  # lives until the call is enqueued
    call.plan.enqueue(operands, stream_address(None, call.plan.ordinal))
    del kept
    found = _summed(line, extents, tuple(tensor.shape))
    return found if found.dtype == tensor.dtype else found.to(tensor.dtype) if tensors.is_torch(found) else found.astype(tensor.dtype)


@in_graphs("differentiate_scores")
@untraced
def score_gradient(of, dout, q, k, v, o, lse, *, dlse=None, **choices):
    """The gradient of a tensor that stands beside q, k and v in attention(): what it changes of a number of which dout tells what o changes, and dlse
    what lse changes.

    of: "bias", "relative_bias", "alibi_slopes" or "sinks". The tensor itself is among the keywords, which are those that attention() was given, as of
    attention_backward(); so are dout, q, k, v, o, lse and dlse. Returns a tensor of its shape and dtype: summed in fp32 over the axes that it
    repeats (those of 1, and those that are missing in front), rounded once. Equal calls give equal bits.

    PyTorch's autograd does this by itself for attention() of such tensors that require gradients. Raises ValueError or TypeError where
    arguments do not fit, attune.Error where the library refuses."""
    given = dict(dlse=dlse, **choices)
    graph = needs_op(dout, q, k, v, o, lse, autocast=False)
    if graph is not None:
        return graph.differentiate_scores(of, dout, q, k, v, o, lse, **given)
    refuse_gradients((("dout", dout), ("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), ("dlse", dlse), *choices.items()))
    return score_gradient_checked(of, dout, q, k, v, o, lse, **given)
