# SPDX-License-Identifier: Apache-2.0
"""attention() of one sequence that is spread over the ranks of a group, with gradients; explain() and verify()."""
import torch

from ..core.problem import problem_text, window_sides
from ..core.torch_state import autocast_dtype, records_gradients, untraced
from ..ops.attention import DEFAULTS
from ..ops.padding import is_between
from ..score.features import NUMBERS
from ..score.programs import bind
from .group import Group, GroupError, key_of
from .layout import Layout
from .plan import ALGORITHMS, make_plan
from .run import BACKWARD, FORWARD, PROGRAMS, Run

OF_HEADS = ("alibi_slopes", "sinks")  # tensors that a group serves; their last axis is the heads
_OF_PROBLEM = ("mask", "window", "scale", "is_causal")
# alike for all launches, but for the places of programs
_CHOICES = ("scale", "softcap", "accuracy", "deterministic", "context", "pad_head_dim", *PROGRAMS)
_OWN = ("group", "layout", "algorithm", "return_lse")
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 1e-4}  # of verify(), of the largest value


class _Attention(torch.autograd.Function):
    """attention() as an autograd function. names: of the features, which are tensors."""

    @staticmethod
    def forward(ctx, run, return_lse, names, q, k, v, *features):
        named = dict(zip(names, features))
        o, lse, kept = FORWARD[run.plan.algorithm](run, q, k, v, named, return_lse)
        ctx.run, ctx.names, ctx.return_lse = run, names, return_lse
        ctx.save_for_backward(*kept, *features)
        return (o, lse) if return_lse else o

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout, dlse=None):
        kept, features = ctx.saved_tensors[:5], dict(zip(ctx.names, ctx.saved_tensors[5:]))
        learned = [name for name, needed in zip(ctx.names, ctx.needs_input_grad[6:]) if needed]
        dq, dk, dv, found = BACKWARD[ctx.run.plan.algorithm](ctx.run, dout.contiguous(), dlse, kept, features, learned)
        return None, None, None, dq, dk, dv, *(found.get(name) for name in ctx.names)


# ---- What a call may ask ----


def _check_operands(q, k, v, layout):
    for name, x in (("q", q), ("k", k), ("v", v)):
        if type(x) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"{name} is {type(x).__name__}; must be a PyTorch tensor with this rank's tokens")
        if x.dtype not in _FLOATS:
            raise ValueError(f"{name} is {x.dtype}; must be bf16, fp16 or fp32: a group serves no 8-bit operands")
        if x.dim() != 4:
            raise ValueError(f"{name} has {x.dim()} dimensions; must be [batch, length, num_heads, head_dim]")
        if x.shape[1] != layout.length:
            raise ValueError(f"{name} has {x.shape[1]} tokens; must have {layout.length}, which the layout gives rank "
                             f"{layout.group.rank}")


def _check_choices(given):
    """Raises for keywords of attention() that a group does not serve."""
    for name, value in given.items():
        if name not in DEFAULTS:
            raise TypeError(f"attention() of a group got an unexpected keyword argument {name!r}")
        if name in (*_OF_PROBLEM, *_CHOICES, *OF_HEADS) or value is DEFAULTS[name] or value == DEFAULTS[name]:
            continue
        raise ValueError(f"{name} is given, and a group does not serve it; must be left out. A group serves "
                         f"mask, window, scale, softcap, {', '.join((*OF_HEADS, *PROGRAMS))}, and packed documents of "
                         "the layout")


def _whole_text(q, k, v, layout, given):
    """Returns the problem of the whole sequence, as text. Head dims that are computed in wider copies have the width of
    these."""
    local = problem_text(q, k, v, **{name: given[name] for name in _OF_PROBLEM if name in given})
    here, whole = (f"seqlen_q={length},seqlen_kv={length}" for length in (layout.length, layout.seqlen))
    text = local.replace(here, whole)
    if is_between(q, k, v):
        for name, x in (("head_dim_qk", q), ("head_dim_v", v)):
            text = text.replace(f"{name}={x.shape[3]},", f"{name}={max(16, -(-x.shape[3] // 8) * 8)},")
    return text


def _check_slopes(plan, given):
    """ALiBi counts distances from the diagonal of a launch, which is the diagonal of the whole under causal masks."""
    is_causal = given.get("is_causal") or given.get("mask") not in (None, "none") or window_sides(
        given.get("window"))[1] == 0
    if given.get("alibi_slopes") is not None and plan.algorithm == "gather" and not is_causal:
        raise ValueError("alibi_slopes is given without a causal mask, and a group with algorithm gather serves it "
                         "with one alone; must have mask='causal', or algorithm='exchange'")


def _programs_of(given):
    """Returns the texts of programs by name, which ranks compare."""
    texts = {}
    for name in PROGRAMS:
        program = given.get(name)
        if program is None:
            continue
        if not callable(program):
            raise ValueError(f"{name} is of type {type(program).__name__}; must be a function in a group, which moves "
                             "its positions")
        bound = bind(name, program)
        if records_gradients(*(x for _, x in bound.captures.values())):
            raise ValueError(f"{name} reads a tensor that requires a gradient, and a group computes none of it; give "
                             "x.detach()")
        texts[name] = bound.program.text
    return texts


def _features_of(q, given):
    """Returns the tensors of heads by name."""
    found = {}
    for name in OF_HEADS:
        x = given.get(name)
        if x is None:
            continue
        if not isinstance(x, torch.Tensor) or x.dim() < 1 or x.shape[-1] not in (1, q.shape[2]):
            raise ValueError(f"{name} must be a PyTorch tensor whose last axis has {q.shape[2]} heads, or 1")
        found[name] = x
    return found


def _described(q, k, v, group, layout, algorithm, return_lse, training, given):
    """Returns the text that ranks compare, and the Run with its features."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}; must be one of {', '.join(ALGORITHMS)}")
    _check_choices(given)
    _check_operands(q, k, v, layout)
    group.check_device(q)
    text = _whole_text(q, k, v, layout, given)
    features = _features_of(q, given)
    plan = make_plan(text, group.world, group.rank, layout.text, algorithm, layout.documents, training)
    _check_slopes(plan, given)
    numbers = {feature.keyword: feature.read(given[feature.keyword]) for feature in NUMBERS
               if given.get(feature.keyword) is not None}
    choices = {name: given[name] for name in _CHOICES if given.get(name) is not None}
    told = {name: f"{x.dtype} {tuple(x.shape)}" for name, x in features.items()} | numbers
    told |= {name: choices.get(name) for name in ("accuracy", "deterministic")} | _programs_of(given)
    others = f"algorithm={algorithm},return_lse={return_lse},training={training},features={told}"
    run = Run(group, layout, plan, (q.shape[2], k.shape[2]), choices)
    run.rehearse(q, k, v, features, return_lse, training)
    steps = f"{plan.algorithm}, received {plan.forward.received} and {plan.backward.received}"
    return f"problem {text},{others},{layout.told},plan={steps}", run


def _key(q, k, v, layout, algorithm, return_lse, training, given):
    shapes = tuple((x.shape, x.dtype, x.device) if isinstance(x, torch.Tensor) else type(x) for x in (q, k, v))
    known = tuple((name, key_of(given[name])) for name in sorted(given))
    return shapes, layout.told, algorithm, return_lse, training, known


def _cast(q, k, v):
    """Returns q, k and v in autocast's dtype, if it casts them."""
    if not all(isinstance(x, torch.Tensor) for x in (q, k, v)):
        return q, k, v
    dtype = autocast_dtype(q, k, v)
    return (q, k, v) if dtype is None else tuple(x.to(dtype) for x in (q, k, v))


def _check_group(group, layout):
    if not isinstance(group, Group):
        raise TypeError(f"group is {type(group).__name__}; must be an attune.distributed.Group")
    if not isinstance(layout, Layout) or layout.group is not group:
        raise TypeError("layout must be a Layout that group.layout() made for this group")


def _run_of(q, k, v, group, layout, algorithm, return_lse, given):
    _check_group(group, layout)
    features = [given.get(name) for name in OF_HEADS]
    training = records_gradients(q, k, v, *features)
    return group.agreed(
        _key(q, k, v, layout, algorithm, return_lse, training, given),
        lambda: _described(q, k, v, group, layout, algorithm, return_lse, training, given)), training


@untraced
def attention(q, k, v, *, group, layout, mask=None, algorithm="auto", return_lse=False, **choices):
    """Returns attention over the whole sequence for this rank's rows. All ranks of the group must call it, in the same
    order; so does autograd's backward, which all ranks must run if one does.

    q: [batch, length, num_heads_q, head_dim], k: [batch, length, num_heads_kv, head_dim], v likewise: the tokens that
    `layout` gives this rank, bf16, fp16 or fp32, as in attune.attention(). group: a Group. layout: of group.layout().
    mask, window, scale, is_causal, softcap, alibi_slopes, sinks, accuracy, deterministic, context: as in
    attune.attention(), for the whole sequence. alibi_slopes and sinks have all heads. Documents are the layout's.
    score_mod, mask_mod: functions, whose positions and heads are those of the whole; their tensors get no gradients.
    Other keywords of attune.attention(), such as bias and dropout_p, raise ValueError: a rank never attends to its own
    tokens alone in silence.

    algorithm: "gather": each rank receives the keys that its rows see. "exchange": each rank computes some heads for
    all rows; num_heads_q must be a multiple of the ranks, and num_heads_kv a multiple or a divisor. "auto": the one of
    the two by which ranks receive fewer bytes, by formula; nothing is measured yet.

    Returns o [batch, length, num_heads_q, head_dim_v], or with return_lse (o, lse [batch, num_heads_q, length]).
    Gradients of k and v are fp32 sums over the ranks, added in the order of ranks: equal in every run if the kernels
    are (deterministic=True). Gradients of alibi_slopes and sinks are this rank's part: add them over the ranks, as
    DistributedDataParallel does for parameters. There are no second derivatives.
    The first call of a kind compiles its kernels, also those of the backward, before anything is sent.
    Raises GroupError on all ranks if they disagree about a call that is new to the group (with ATTUNE_CHECK_GROUP=1:
    about any call), if one of them refuses it or cannot compile it, or if a transfer fails; ValueError, TypeError and
    attune.Error as attune.attention() does."""
    choices["mask"], (q, k, v) = mask, _cast(q, k, v)
    run, training = _run_of(q, k, v, group, layout, algorithm, return_lse, choices)
    features = _features_of(q, choices)
    if training:
        return _Attention.apply(run, return_lse, tuple(features), q, k, v, *features.values())
    o, lse, _ = FORWARD[run.plan.algorithm](run, q, k, v, features, return_lse)
    return (o, lse) if return_lse else o


@untraced
def explain(q, k, v, *, group, layout, algorithm="auto", return_lse=False, **choices):
    """Returns a text: the algorithm, the bytes that each rank receives, and the launches of this rank. Arguments are
    those of attention(). All ranks must call it; computes nothing."""
    run, training = _run_of(*_cast(q, k, v), group, layout, algorithm, return_lse, choices)
    plan = run.plan
    lines = [f"rank {group.rank} of {group.world}: algorithm {run.plan.algorithm}, layout {layout.text}"]
    for name, steps in (("forward", plan.forward), ("backward", plan.backward))[:2 if training else 1]:
        lines.append(f"{name}: received bytes by rank {', '.join(map(str, steps.received))}")
        for launch in steps.launches:
            window = "" if launch.left < 0 and launch.right < 0 else f", window {launch.left}:{launch.right}"
            rows, keys, heads = ("{}-{}".format(*pair) for pair in (launch.rows, launch.keys, launch.heads))
            lines.append(f"  rows {rows}, keys {keys}, heads {heads}{window}")
    return "\n".join(lines)


@untraced
def verify(q, k, v, *, group, layout, tolerance=None, **choices):
    """Checks on real tensors that the ranks together compute what one rank would. Arguments are those of attention();
    all ranks must call it. Each rank gathers the whole q, k and v, so it needs the memory of one device's call.

    Returns the largest difference over all ranks, relative to the largest value of o. Raises GroupError on every rank
    if it is above `tolerance` (by default 2e-2 for bf16, 3e-3 for fp16, 1e-4 for fp32)."""
    q, k, v = (x.detach() for x in _cast(q, k, v))
    choices = {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in choices.items()}
    mine = attention(q, k, v, group=group, layout=layout, **choices)
    mine = mine[0] if isinstance(mine, tuple) else mine
    choices = {name: x for name, x in choices.items() if name not in _OWN}
    whole = [layout.unshard(x) for x in (q, k, v)]
    alone = Layout(_Alone, layout.seqlen, layout.documents, f"0-{layout.seqlen}")
    plan = make_plan(_whole_text(*whole, alone, choices), 1, 0, alone.text, "gather", layout.documents)
    run = Run(_Alone, alone, plan, (q.shape[2], k.shape[2]),
              {name: choices[name] for name in _CHOICES if choices.get(name) is not None})
    expected = layout.shard(FORWARD["gather"](run, *whole, _features_of(q, choices), False)[0]).double()
    found = torch.zeros(2, dtype=torch.float64, device=q.device)
    if mine.numel():
        found = torch.stack([(mine.double() - expected).abs().max(), expected.abs().max()])
    differences, largest = torch.stack(group.gather_parts(found, (2,) * group.world)).amax(0).tolist()
    error = differences / (largest or 1.0)
    limit = _TOLERANCE[q.dtype] if tolerance is None else tolerance
    if not error <= limit:
        raise GroupError(f"ranks together differ from one rank by {error:.2e} of the largest value; must be at most "
                         f"{limit:.2e}")
    return error


class _Alone:
    """A group of one rank, which moves nothing."""
    rank, world = 0, 1
