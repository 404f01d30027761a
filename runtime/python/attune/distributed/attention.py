# SPDX-License-Identifier: Apache-2.0
"""attention() of one sequence that is spread over the ranks of a group, with gradients; explain() and verify()."""
import torch

from ..core.flags import flag
from ..core.problem import problem_text, window_sides
from ..core.torch_state import autocast_dtype, records_gradients, untraced
from ..ops.padding import is_between
from ..score.programs import bind
from .features import (CHOICES, LEARNED, OF_PROBLEM, OF_ROWS, PROGRAMS, algorithm_for, check_algorithm, check_invariant,
                       check_keywords, check_seeds, chunked, is_causal, numbers_of, seeds_of, tensors_of,
                       told_of, without_seeds)
from .group import Group, GroupError, key_of
from .layout import Layout
from .plan import ALGORITHMS, make_plan
from .run import BACKWARD, FORWARD, Run

_OWN = ("group", "layout", "algorithm", "return_lse", "world_invariant")
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 1e-4}  # of verify(), of the largest value


class _Attention(torch.autograd.Function):
    """attention() as an autograd function. names: of the features, which are tensors."""

    @staticmethod
    def forward(ctx, run, return_lse, names, q, k, v, *features):
        named = dict(zip(names, features))
        o, lse, kept, moved = FORWARD[run.plan.algorithm](run, q, k, v, named, return_lse)
        ctx.run, ctx.names, ctx.dtypes = run, names, [x.dtype for x in features]
        ctx.save_for_backward(*kept, *(moved[name] for name in names))
        return (o, lse) if return_lse else o

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout, dlse=None):
        kept, features = ctx.saved_tensors[:5], dict(zip(ctx.names, ctx.saved_tensors[5:]))
        learned = [name for name, needed in zip(ctx.names, ctx.needs_input_grad[6:]) if needed]
        dq, dk, dv, found = BACKWARD[ctx.run.plan.algorithm](ctx.run, dout.contiguous(), dlse, kept, features, learned)
        of_features = [found[name].to(dtype) if name in found else None for name, dtype in zip(ctx.names, ctx.dtypes)]
        return None, None, None, dq, dk, dv, *of_features


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


def _whole_text(q, k, v, layout, given):
    """Returns the problem of the whole sequence, as text. Head dims that are computed in wider copies have the width of
    these."""
    local = problem_text(q, k, v, **{name: given[name] for name in OF_PROBLEM if name in given})
    here, whole = (f"seqlen_q={length},seqlen_kv={length}" for length in (layout.length, layout.seqlen))
    text = local.replace(here, whole)
    if is_between(q, k, v):
        for name, x in (("head_dim_qk", q), ("head_dim_v", v)):
            text = text.replace(f"{name}={x.shape[3]},", f"{name}={max(16, -(-x.shape[3] // 8) * 8)},")
    return text


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


def _described(q, k, v, group, layout, algorithm, return_lse, training, invariant, given, seeds):
    """Returns the text that ranks compare, and the Run with its features."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}; must be one of {', '.join(ALGORITHMS)}")
    check_keywords(given)
    _check_operands(q, k, v, layout)
    group.check_device(q)
    check_seeds(q, seeds)
    text = _whole_text(q, k, v, layout, given)
    features = tensors_of(q, layout, given)
    algorithm = algorithm_for(given, algorithm, layout.documents)
    plan = make_plan(text, group.world, group.rank, layout.text, algorithm, layout.documents, training, invariant)
    check_algorithm(given, plan.algorithm)
    given = chunked({**given, **numbers_of(given)}, plan.algorithm)
    if invariant:
        check_invariant(given, features)
        given["deterministic"] = True
    choices = {name: given[name] for name in CHOICES if given.get(name) is not None}
    told = told_of(features, layout)
    told |= {name: choices.get(name) for name in CHOICES if name not in ("context", *PROGRAMS)}
    others = (f"algorithm={algorithm},return_lse={return_lse},training={training},world_invariant={invariant},"
              f"features={told | _programs_of(given)}")
    shapes = {name: x.shape for name, x in features.items()}
    run = Run(group, layout, plan, (q.shape[2], k.shape[2]), choices, window_sides(given.get("window"))[0], shapes,
              is_causal(given))
    features.update({name: torch.zeros((), dtype=torch.int64, device=q.device) for name in seeds})
    run.rehearse(q, k, v, features, return_lse, training)
    steps = f"{plan.algorithm}, received {plan.forward.received} and {plan.backward.received}"
    return f"problem {text},{others},{layout.told},plan={steps}", run


def _key(q, k, v, layout, algorithm, return_lse, training, invariant, given, seeds):
    shapes = tuple((x.shape, x.dtype, x.device) if isinstance(x, torch.Tensor) else type(x) for x in (q, k, v))
    known = tuple((name, key_of(given[name])) for name in sorted(given))
    of_seeds = tuple(key_of(x) if isinstance(x, torch.Tensor) else type(x) for x in seeds.values())
    return shapes, layout.told, algorithm, return_lse, training, invariant, known, of_seeds


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


def _run_of(q, k, v, group, layout, algorithm, return_lse, given, world_invariant=False):
    """Returns the Run, whether autograd records the call, and the tensors of features."""
    invariant = flag("world_invariant", world_invariant)
    _check_group(group, layout)
    given, seeds = without_seeds(given)
    training = records_gradients(q, k, v, *(given.get(name) for name in LEARNED))
    run = group.agreed(
        _key(q, k, v, layout, algorithm, return_lse, training, invariant, given, seeds),
        lambda: _described(q, k, v, group, layout, algorithm, return_lse, training, invariant, given, seeds))
    return run, training, tensors_of(q, layout, given) | seeds_of(q, group, seeds)


@untraced
def attention(q, k, v, *, group, layout, mask=None, algorithm="auto", return_lse=False, world_invariant=False,
              **choices):
    """Returns attention over the whole sequence for this rank's rows. All ranks of the group must call it, in the same
    order; so does autograd's backward, which all ranks must run if one does.

    q: [batch, length, num_heads_q, head_dim], k: [batch, length, num_heads_kv, head_dim], v likewise: the tokens that
    `layout` gives this rank, bf16, fp16 or fp32, as in attune.attention(). group: a Group. layout: of group.layout().
    mask, window, scale, is_causal, softcap, chunk, accuracy, deterministic, context, relative_bias, alibi_slopes,
    sinks, key_lengths, documents, prefix: as in attune.attention(), for the whole sequence, on each rank. Packed
    documents are the layout's; documents are ids besides. prefix needs algorithm "exchange".
    bias, mask_tensor: [batch, num_heads_q, length, seqlen]: this rank's rows and all keys. Axes of 1 broadcast.
    score_mod, mask_mod: functions, whose positions and heads are those of the whole; their tensors get no gradients.
    dropout_p, seed, offset: equal on all ranks. Ranks together drop what one rank would with this seed, for any number
    of ranks and any layout. Packed documents count as batch entries of their own. seed None: rank 0 draws one.
    Other keywords of attune.attention(), such as block_map, raise ValueError: a rank never attends to its own tokens
    alone in silence.

    algorithm: "gather": each rank receives the keys that its rows see. "exchange": each rank computes some heads for
    all rows; num_heads_q must be a multiple of the ranks, and num_heads_kv a multiple or a divisor. "auto": the one of
    the two by which ranks receive fewer bytes, by formula; nothing is measured yet.

    world_invariant: True gives o, lse and gradients of q, k and v the same bits for any number of ranks, also for one.
    Launches then have rows of one of 16 blocks of the sequence, by algorithm "gather", and gradients of k and v are
    added along a fixed tree. Layouts: contiguous on 1, 2, 4, 8 or 16 ranks, zigzag on 1, 2, 4 or 8. All ranks must have
    equal devices, stores and libraries. Gradients of tensors other than a bias of all rows are refused.

    Returns o [batch, length, num_heads_q, head_dim_v], or with return_lse (o, lse [batch, num_heads_q, length]).
    Gradients of k and v are fp32 sums over the ranks, added in the order of ranks: equal in every run if the kernels
    are (deterministic=True). Gradients of relative_bias, alibi_slopes and sinks, and of a bias whose row axis is 1, are
    this rank's part: add them over the ranks, as DistributedDataParallel does for parameters. There are no second
    derivatives.
    The first call of a kind compiles its kernels, also those of the backward, before anything is sent.
    Raises GroupError on all ranks if they disagree about a call that is new to the group (with ATTUNE_CHECK_GROUP=1:
    about any call), if one of them refuses it or cannot compile it, or if a transfer fails; ValueError, TypeError and
    attune.Error as attune.attention() does."""
    choices["mask"], (q, k, v) = mask, _cast(q, k, v)
    run, training, features = _run_of(q, k, v, group, layout, algorithm, return_lse, choices, world_invariant)
    if training:
        return _Attention.apply(run, return_lse, tuple(features), q, k, v, *features.values())
    o, lse, *_ = FORWARD[run.plan.algorithm](run, q, k, v, features, return_lse)
    return (o, lse) if return_lse else o


@untraced
def explain(q, k, v, *, group, layout, algorithm="auto", return_lse=False, world_invariant=False, **choices):
    """Returns a text: the algorithm, the bytes that each rank receives, and the launches of this rank. Arguments are
    those of attention(). All ranks must call it; computes nothing."""
    run, training, _ = _run_of(*_cast(q, k, v), group, layout, algorithm, return_lse, choices, world_invariant)
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
    choices, seeds = without_seeds(choices)
    if seeds:
        choices.update(seeds_of(q, group, seeds))
    mine = attention(q, k, v, group=group, layout=layout, **choices)
    mine = mine[0] if isinstance(mine, tuple) else mine
    choices = {name: x for name, x in choices.items() if name not in _OWN}
    expected = layout.shard(_alone(q, k, v, layout, choices)).double()
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

    @staticmethod
    def check_device(x):
        pass


def _alone(q, k, v, layout, choices):
    """Returns o of the whole sequence, as one rank computes it. Arguments are those of this rank."""
    whole, choices = [layout.unshard(x) for x in (q, k, v)], dict(choices)
    for name in OF_ROWS:
        x = choices.get(name)
        if x is not None and x.dim() > 1 and (x.shape[-2] != 1 or layout.length == 1):
            choices[name] = layout.unshard(x, -2)
    alone = Layout(_Alone, layout.seqlen, layout.documents, f"0-{layout.seqlen}")
    choices, seeds = without_seeds(choices)
    _, run = _described(*whole, _Alone, alone, "auto", False, False, False, choices, seeds)
    features = tensors_of(whole[0], alone, choices) | seeds_of(q, _Alone, seeds)
    return FORWARD[run.plan.algorithm](run, *whole, features, False)[0]
