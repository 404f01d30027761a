# SPDX-License-Identifier: Apache-2.0
"""The table of score features: all that Python knows of each. A new feature is a row here and a keyword of attention(),
and of attention_kvcache() if it is over caches. Used by scores.py, ops/, torch/ and tools/why.py."""
from collections import namedtuple

from ..core.problem import in_fp32, real, whole


def _softcap(value):
    number = real("softcap", value)
    if not 0 < in_fp32(number) < float("inf"):
        raise ValueError(f"softcap is {number}; must be above 0 and finite in fp32, or None")
    return number


def _chunk(value):
    number = whole("chunk", value)
    if number < 1:
        raise ValueError(f"chunk is {number}; must be at least 1, or None")
    return number


# keyword: of attention(), and of the functions with its keywords. field: of the problem.
# read: returns a feature's number, or raises. type: the number's.
# captures: names of a feature's tensors; a tuple of several is given as a tuple, or as one tensor for all.
# axes: the axes of each capture, by the problem's extents. Leading axes may be missing, and any may be 1: both
# broadcast.
# dtypes: the dtypes that a feature takes, with the field's value for each.
# repeats: for a tensor with gradients, the letters of the problem's `repeats` for its axes.
# is_mask: it hides keys, so a block map may describe it. over_caches: attention_kvcache() takes it.
# is_program: text or a function; programs.py reads it.
Feature = namedtuple("Feature", "keyword field read type captures axes dtypes repeats is_mask over_caches is_program",
                     defaults=(None, None, (), (), {}, None, False, False, False))
_FLOATS, _FLAG, _INTS = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}, {"fp32": "1"}, {"int32": "1"}
_EACH = ("batch", "num_heads_q", "seqlen_q", "seqlen_kv")
FEATURES = (
    Feature("softcap", "softcap", _softcap, float, over_caches=True),
    Feature("chunk", "chunk", _chunk, int, is_mask=True),
    Feature("bias", "bias", captures=("bias", ), axes=(_EACH, ), dtypes=_FLOATS, repeats="bhqk"),
    Feature("relative_bias", "relative_bias", captures=("relative_bias", ), axes=(("num_heads_q", "distances"), ),
            dtypes=_FLOATS, repeats="h"),
    Feature("alibi_slopes", "alibi", captures=("alibi_slopes", ), axes=(("batch", "num_heads_q"), ), dtypes=_FLAG,
            repeats="bh", over_caches=True),
    Feature("mask_tensor", "mask_tensor", captures=("mask_tensor", ), axes=(_EACH, ), dtypes={"bool": "1"},
            is_mask=True),
    Feature("key_lengths", "key_lengths", captures=("key_lengths", ), axes=(("batch", ), ), dtypes=_INTS, is_mask=True),
    Feature("documents", "documents", captures=("documents_q", "documents_kv"),
            axes=(("batch", "seqlen_q"), ("batch", "seqlen_kv")), dtypes=_INTS, is_mask=True),
    Feature("sinks", "sinks", captures=("sinks", ), axes=(("num_heads_q", ), ), dtypes=_FLOATS, repeats="",
            over_caches=True),
    Feature("prefix", "prefix", captures=("prefix", ), axes=(("batch", ), ), dtypes=_INTS, is_mask=True),
    Feature("score_mod", "score_mod", over_caches=True, is_program=True),
    Feature("mask_mod", "mask_mod", is_mask=True, over_caches=True, is_program=True),
)
NUMBERS = tuple(feature for feature in FEATURES if feature.read)
TENSORS = tuple(feature for feature in FEATURES if feature.captures)
LEARNED = {feature.keyword: feature for feature in TENSORS if feature.repeats is not None}
# Keywords.
MASKS = tuple(feature.keyword for feature in FEATURES if feature.is_mask)
OVER_CACHES = tuple(feature.keyword for feature in FEATURES if feature.over_caches)
BESIDE = ("block_map", "dropout_p", "seed", "offset")  # what Scores holds besides the table
KEYWORDS = (*(feature.keyword for feature in FEATURES), *BESIDE)
# Keywords of calls that the C module does not repeat: its key does not cover them.
UNREPEATED = (*(feature.keyword for feature in FEATURES if feature.is_program), "block_map")


def parts_of(feature, value):
    """Returns the tensors of a feature, one for each of its captures. Raises if `value` has another number of them."""
    captures = feature.captures
    parts = value if isinstance(value, (tuple, list)) else (value,) * len(captures)
    if len(parts) != len(captures) or (parts is value and len(parts) == 1):
        raise ValueError(
            f"{feature.keyword} is a {type(value).__name__} of {len(parts)}; must be a PyTorch tensor or a NumPy array"
            + (", or a pair of them (of rows, of keys)" if len(captures) == 2 else ""))
    return parts


def extents_of(batch, num_heads_q, seqlen_q, seqlen_kv):
    """Returns the extent of each axis in the table, by name."""
    return dict(batch=batch, num_heads_q=num_heads_q, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv,
                distances=max(seqlen_q + seqlen_kv - 1, 0))
