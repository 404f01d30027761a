# SPDX-License-Identifier: Apache-2.0
"""The keywords of attention() that a group serves, and the parts of their tensors that one launch reads. Used by
attention.py and launches.py."""
import torch

from ..core.problem import window_sides
from ..ops.attention import DEFAULTS
from ..score.dropout import drawn_seed, rate_of, signed
from ..score.features import LEARNED as LEARNED_FEATURES, NUMBERS, TENSORS, extents_of
from ..score.scores import refuse_other_extents

OF_PROBLEM = ("mask", "window", "scale", "is_causal")
PROGRAMS = ("score_mod", "mask_mod")  # functions, whose positions are moved
# alike for all launches, but for the places of programs
CHOICES = ("scale", "softcap", "chunk", "accuracy", "deterministic", "context", "pad_head_dim", "dropout_p", *PROGRAMS)
OF_ROWS = ("bias", "mask_tensor")  # [batch, num_heads_q, this rank's rows, all keys]
OF_TENSORS = tuple(feature.keyword for feature in TENSORS)
LEARNED = tuple(LEARNED_FEATURES)
SEEDS = ("seed", "offset")
SERVED = frozenset((*OF_PROBLEM, *CHOICES, *OF_TENSORS, *SEEDS))
_8_BITS = "it takes no 8-bit operands"
REFUSED = {
    "out": "it makes o itself", "out_dtype": "o has q's dtype", "dtype": "dtypes are those of the tensors",
    "return_max_logits": "each rank has only its own rows",
    "block_map": "blocks of the whole are not those of a rank's launches", "dtype_kv": _8_BITS, "q_scale": _8_BITS,
    "k_scale": _8_BITS, "v_scale": _8_BITS, "scale_block": _8_BITS, "v_layout": _8_BITS}


def check_keywords(given):
    """Raises for keywords of attention() that a group does not serve."""
    for name, value in given.items():
        if name not in DEFAULTS:
            raise TypeError(f"attention() of a group got an unexpected keyword argument {name!r}")
        if name in REFUSED and value is not DEFAULTS[name] and value != DEFAULTS[name]:
            raise ValueError(f"{name} is given, and a group does not serve it: {REFUSED[name]}; must be left out")


def is_causal(given):
    return bool(given.get("is_causal")) or given.get("mask") not in (None, "none") or window_sides(
        given.get("window"))[1] == 0


def algorithm_for(given, algorithm, documents):
    """Returns the algorithm to ask for. Raises if the features cannot have the given one."""
    if given.get("prefix") is None:
        return algorithm
    if documents is not None:
        raise ValueError("prefix is given with packed documents of the layout, and a group does not serve both; must "
                         "be without one of them")
    if algorithm not in ("auto", "exchange"):
        raise ValueError(f"prefix is given with algorithm {algorithm!r}, by which ranks get the keys that mask and "
                         "window show; must have algorithm='exchange'")
    return "exchange"


def check_algorithm(given, algorithm):
    """ALiBi counts distances from the diagonal of a launch, which is the diagonal of the whole under causal masks."""
    if given.get("alibi_slopes") is not None and algorithm == "gather" and not is_causal(given):
        raise ValueError("alibi_slopes is given without a causal mask, and a group with algorithm gather serves it "
                         "with one alone; must have mask='causal', or algorithm='exchange'")


def check_invariant(given, features):
    """Raises for gradients that are the parts of ranks: their sum depends on the number of ranks."""
    if given.get("deterministic") is False:
        raise ValueError("deterministic is False with world_invariant; must be left out or True")
    for name, x in features.items():
        if x.requires_grad and not (name in OF_ROWS and x.shape[2] > 1):
            raise ValueError(f"{name} requires a gradient, and world_invariant serves gradients of q, k, v and a bias "
                             "of all rows alone; must be given as x.detach()")


def chunked(given, algorithm):
    """Returns the keywords with chunk as a mask_mod, if launches do not begin with the first key of the whole."""
    size, shown = given.get("chunk"), given.get("mask_mod")
    if size is None or algorithm == "exchange":
        return given

    def mask_mod(batch, head, q_idx, kv_idx):
        seen = q_idx // size == kv_idx // size
        return seen if shown is None else seen & shown(batch, head, q_idx, kv_idx)
    return {**given, "chunk": None, "mask_mod": mask_mod}


# ---- Tensors ----


def _whole_rank(name, x, axes, extents):
    """Returns a view of a feature's tensor with all of its axes."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} must be a PyTorch tensor in a group, not {type(x).__name__}")
    refuse_other_extents(name, tuple(x.shape), axes, [extents[axis] for axis in axes])
    return x.reshape((1,) * (len(axes) - x.dim()) + tuple(x.shape))


def tensors_of(q, layout, given):
    """Returns the tensors of features by the names of their captures, with all axes. q: this rank's rows."""
    found = {}
    for feature in TENSORS:
        x = given.get(feature.keyword)
        if x is None:
            continue
        rows = layout.length if feature.keyword in OF_ROWS else layout.seqlen
        extents = extents_of(q.shape[0], q.shape[2], rows, layout.seqlen)
        parts = x if isinstance(x, (tuple, list)) else (x,) * len(feature.captures)
        if len(parts) != len(feature.captures):
            raise ValueError(f"{feature.keyword} has {len(parts)} tensors; must have {len(feature.captures)}, or one "
                             "for all")
        for name, part, axes in zip(feature.captures, parts, feature.axes):
            found[name] = _whole_rank(feature.keyword, part, axes, extents)
    return found


def told_of(features, layout):
    """Returns the dtypes and shapes of tensors, as ranks compare them."""
    told = {}
    for name, x in features.items():
        shape = list(x.shape)
        if name in OF_ROWS and shape[2] == layout.length:
            shape[2] = "rows"
        told[name] = f"{x.dtype} {shape}"
    return told


def check_seeds(q, seeds):
    for name, value in seeds.items():
        if not isinstance(value, torch.Tensor):
            if value is not None:
                signed(name, value)
        elif value.dtype != torch.int64 or value.numel() != 1 or value.device != q.device:
            found = f"{value.dtype} of shape {tuple(value.shape)} on {value.device}"
            raise ValueError(f"{name} is {found}; must be a whole "
                             f"number or an int64 tensor of one element on {q.device}")


def seeds_of(q, group, seeds):
    """Returns seed and offset as tensors on q's device. Rank 0 draws a seed that is not given."""
    found = {}
    for name, value in seeds.items():
        if value is None and name == "seed":
            value = drawn_seed(q)
            if group.world > 1:
                group.broadcast(value, 0)
        elif not isinstance(value, torch.Tensor):
            value = torch.full((), signed(name, value or 0), dtype=torch.int64, device=q.device)
        found[name] = value.detach().reshape(())
    return found


def without_seeds(given):
    """Returns the keywords without seed and offset, and these two, {} without dropout."""
    rate, others = given.get("dropout_p"), {name: x for name, x in given.items() if name not in SEEDS}
    if rate is None or rate_of(rate) == 0:
        others.pop("dropout_p", None)
        return others, {}
    return others, {name: given.get(name) for name in SEEDS}


def numbers_of(given):
    """Returns the features that are numbers, checked, by name."""
    return {feature.keyword: feature.read(given[feature.keyword]) for feature in NUMBERS
            if given.get(feature.keyword) is not None}


# ---- The parts of one launch ----


def index_of(name, x, part):
    """Returns the index of the elements of a feature's tensor that a launch reads. part: a Part (launches.py)."""
    launch = part.launch
    of = lambda axis, places: places if x.shape[axis] > 1 else slice(None)
    heads = lambda axis: slice(*launch.heads) if x.shape[axis] == part.heads_q else slice(None)
    if name in OF_ROWS:
        return of(0, part.batch), heads(1), of(2, part.rows), of(3, slice(*launch.keys))
    if name == "relative_bias":  # the last index is key - row + seqlen - 1
        first = part.seqlen - launch.rows[1] + launch.keys[0]
        return heads(0), slice(first, first + part.front + launch.rows[1] - launch.rows[0] + launch.keys[1] -
                               launch.keys[0] - 1)
    if name == "sinks":
        return (heads(0),)
    if name == "alibi_slopes":
        return of(0, part.batch), heads(1)
    if name in ("documents_q", "documents_kv"):
        return of(0, part.batch), of(1, slice(*(launch.rows if name == "documents_q" else launch.keys)))
    return (of(0, part.batch),)  # key_lengths and prefix


def rows_axis(name, x):
    """Returns the axis of a feature's tensor that has rows, or None."""
    axis = 2 if name in OF_ROWS else 1 if name == "documents_q" else None
    return axis if axis is not None and x.shape[axis] > 1 else None


def value_of(name, x, part):
    """Returns what a launch gets as a feature's tensor."""
    found = x[index_of(name, x, part)]
    if name == "key_lengths":
        return (found - part.launch.keys[0]).clamp(min=0)
    axis = rows_axis(name, x)
    if part.front and axis is not None:  # rows that this launch alone has
        shape = list(found.shape)
        shape[axis] = part.front
        found = torch.cat([found.new_zeros(shape), found], axis)
    return found if name in OF_ROWS else found.contiguous()
