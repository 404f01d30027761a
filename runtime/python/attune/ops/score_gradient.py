# SPDX-License-Identifier: Apache-2.0
"""score_gradient(): gradients of a bias, a relative bias, ALiBi's slopes, sinks, and tensors that a score_mod reads.
Uses the call of backward.py, with another problem and output. torch/autograd.py calls it for PyTorch's autograd."""
from functools import partial

from ..core import tensors
from ..core.copies import readable_operand
from ..core.torch_state import in_graphs, needs_op, profiled, refuse_gradients, untraced
from ..score.capture_gradient import CaptureGradient, find_capture, names_of
from ..score.features import LEARNED, extents_of
from ..score.scores import scores_of
from .attention import OF_GRADIENTS, choices_of
from .backward import (OF_PROBLEM, check_like_o, check_operands, check_ranks, checked_choices, make_call,
                       readable_lse)
from .call import kept_call, key_of
from .context import context_of
from .padding import is_between, widened, widened_arguments
from .public import with_keywords

_OF_LOAD, _OF_DIAGONALS = 5, 6  # values of attune_score_gradient
_REPEATS = {"b": 1, "h": 2, "q": 4}  # values of attune_repeats
_FLOATS = 4  # floats in 16 bytes: lines of a gradient begin at multiples of these


def _whole(shape, rank):
    """Returns the shape with axes of 1 for missing leading axes."""
    return (1,) * (rank - len(shape)) + tuple(shape)


def _axes(feature, tensor, q, k):
    """Returns the extents of the tensor's axes, and those of the call."""
    extents = extents_of(q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    wanted = tuple(extents[axis] for axis in feature.axes[0])
    if len(tensor.shape) > len(wanted):
        raise ValueError(f"{feature.keyword} has {len(tensor.shape)} dimensions; must be at most {len(wanted)}")
    return _whole(tensor.shape, len(wanted)), wanted


def _memory(feature, extents, wanted, q):
    """Returns new memory for the gradient in the library's form, [batch, rows, heads, columns], and a view of it with
    the tensor's axes, of which the last has the columns."""
    axes = feature.axes[0]
    columns = extents[-1] if len(feature.repeats) == len(axes) else wanted[-1]  # all axes may be repeated
    padded = -(-columns // _FLOATS) * _FLOATS
    made = tensors.empty(q, (*extents[:-1], padded), tensors.native_dtype(q, "fp32"))
    line = made[..., :columns]
    if "seqlen_q" in axes:  # which the library has before heads
        return (line.permute(0, 2, 1, 3) if tensors.is_torch(line) else line.transpose(0, 2, 1, 3)), line
    places = [name in axes[:-1] for name in ("batch", "seqlen_q", "num_heads_q")]
    return line[tuple(slice(None) if place else None for place in places)], line


def _summed(line, extents, shape):
    """Returns the sum over axes that the tensor broadcasts and the library's gradient does not."""
    axes = tuple(axis for axis, (found, extent) in enumerate(zip(line.shape, extents)) if found != extent)
    for axis in axes:
        line = line.sum(axis, keepdim=True) if hasattr(line, "dim") else line.sum(axis, keepdims=True)
    return line.reshape(shape)


def _padded(name, given, dlse, choices):
    q, v = given["q"], given["v"]
    wide = widened_arguments({"out": None, **choices, **{x: given[x] for x in "qkv"}})
    wide_o, wide_dout = (widened(x, check_like_o(x, given[x], q, v), q) for x in ("o", "dout"))
    return score_gradient_checked(name, wide_dout, wide["q"], wide["k"], wide["v"], wide_o, given["lse"], dlse=dlse,
                                  **{name: wide[name] for name in choices})


def score_gradient_checked(name, dout, q, k, v, o, lse, *, dlse=None, **choices):
    """Implements score_gradient() for tensors with memory and without autograd history."""
    given, score_mod = choices.get(name), choices.get("score_mod")
    capture = None if given is not None else find_capture(name, score_mod)
    if name not in LEARNED and capture is None:
        raise ValueError(f"of is {name!r}; must be one of {', '.join((*LEARNED, *names_of(score_mod)))}")
    if capture is None and given is None:
        raise ValueError(f"of is {name!r}, and {name} is not given; must name a tensor that attention() was given")
    operands, choices = dict(dout=dout, q=q, k=k, v=v, o=o, lse=lse), checked_choices(choices)
    check_operands(operands)
    if is_between(q, k, v):
        return _padded(name, operands, dlse, choices)
    tensors.check_rank("dout", dout, tensors.DIMENSIONS[tensors.ROWS])
    check_ranks(q, k, v)
    operands.update(dout=readable_operand("dout", dout), dlse=readable_lse("dlse", dlse))
    context = context_of(choices["context"], tensors.check_device("q", q))
    run = partial(_run, context, operands, choices, scores_of(choices))
    return _of_capture(*capture, q, k, run) if capture is not None else _of_tensor(LEARNED[name], given, q, k, run)


def _run(context, given, choices, scores, asked, output, fields=()):
    """Writes the gradient that the problem's fields name. asked: fields as a text. fields: as in make_call()."""
    given, keywords = {**given, "dscores": output}, {name: choices[name] for name in OF_PROBLEM}
    asked += ",deterministic=1" if choices["deterministic"] else ""
    key = "score gradient", asked, fields, *key_of(given), choices_of(**keywords), scores.key
    call = kept_call(context, key, lambda: make_call(context, given, asked, keywords, scores, fields))
    operands, _ = call.bind(given, fresh=True)
    kept = scores.give(operands, call.plan)  # lives until the call is enqueued
    call.run(operands)
    del kept


def _of_tensor(feature, tensor, q, k, run):
    extents, wanted = _axes(feature, tensor, q, k)
    if feature.keyword != "sinks" and 0 in (*q.shape[:3], k.shape[1]):  # there are no scores
        nothing = tensors.empty(q, tuple(tensor.shape), tensor.dtype)
        tensors.fill(nothing, 0)
        return nothing
    letters = "".join(
        letter for letter, found, extent in zip(feature.repeats, extents, wanted) if found == 1 and extent != 1)
    output, line = _memory(feature, extents, wanted, q)
    if 0 in output.shape:
        return tensors.empty(q, tuple(tensor.shape), tensor.dtype)
    run(f"score_gradient={feature.field}" + (f",repeats={letters}" if letters else ""), output)
    return _in_dtype(_summed(line, extents, tuple(tensor.shape)), tensor)


def _of_capture(bound, name, q, k, run):
    """Returns the gradient of a program's tensor: the sum over the program's loads of it."""
    gradient = CaptureGradient(bound, name, q, k)
    extents = gradient.extents
    for load in gradient.loads if 0 not in (*q.shape[:3], k.shape[1]) else ():
        indices, letters = gradient.places(load)
        of_diagonals = gradient.has_diagonals(load)
        whole = {"b": extents.batch, "h": extents.num_heads_q, "q": extents.seqlen_q}
        batch, heads, rows = (1 if letter in letters else extent for letter, extent in whole.items())
        layout, shape = ("relative_bias", (heads, extents.seqlen_q + extents.seqlen_kv -
                                           1)) if of_diagonals else ("bias", (batch, heads, rows, extents.seqlen_kv))
        output, line = _memory(LEARNED[layout], shape, shape, q)
        repeats = sum(_REPEATS[letter] for letter in letters)
        run("gradients=qkv", output,
            (("score_gradient", _OF_DIAGONALS if of_diagonals else _OF_LOAD), ("load", load), ("repeats", repeats)))
        gradient.add(load, indices, line.reshape(1, heads, 1, shape[-1]) if of_diagonals else line)
    return _in_dtype(gradient.sum, gradient.tensor)


def _in_dtype(found, tensor):
    return found if found.dtype == tensor.dtype else found.to(
        tensor.dtype) if tensors.is_torch(found) else found.astype(tensor.dtype)


@in_graphs("differentiate_scores")
@untraced
@profiled
@with_keywords(OF_GRADIENTS)
def score_gradient(of, dout, q, k, v, o, lse, *, dlse=None, **choices):
    """Returns the gradient of a score tensor of attention(), given the gradients of its o and lse.

    of: "bias", "relative_bias", "alibi_slopes", "sinks", or the name of a tensor in score_mod. The tensor itself is
    among the keywords, which are those that attention() was given. All other arguments are as in attention_backward().

    Returns a tensor of its shape and dtype. It is summed in fp32 over the axes that the tensor broadcasts (axes of 1
    and missing leading axes), and rounded once. deterministic: as in attention_backward().
    Each element of a score_mod's tensor gets the sum over all places that load it, also through indices from other
    tensors. Indices that depend on both row and key, and not only on their distance, take memory per row and key, times
    the heads and batch entries that they depend on.

    PyTorch's autograd does this for attention() of such tensors that require gradients. Raises ValueError or TypeError
    if arguments do not fit, and attune.Error if the library refuses the call."""
    graph = needs_op(dout, q, k, v, o, lse, autocast=False, named=("dout", "q", "k", "v", "o", "lse"))
    if graph is not None:
        return graph.differentiate_scores(of, dout, q, k, v, o, lse, dlse=dlse, **choices)
    refuse_gradients(
        (("dout", dout), ("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), ("dlse", dlse), *choices.items()))
    return score_gradient_checked(of, dout, q, k, v, o, lse, dlse=dlse, **choices)
