# SPDX-License-Identifier: Apache-2.0
"""The spec of attune's PyTorch ops: one text that holds all arguments of a call that are not tensors. A new feature is
a new word of the spec, so the ops' schemas stay the same. Used by __init__.py and graph.py.

Its first line has problem fields as in attune.h, and a few of attention()'s keywords. Programs of the score language
follow, each after a line with its name. It holds no lengths: one compiled graph serves all."""
import functools
from collections import namedtuple

from ..core import tensors
from ..core.flags import flag, flag_or_none
from ..core.problem import causal_flag, mask_name, scale_blocks, v_layout_of, window_sides, word
from ..ops.public import with_keywords
from ..score.dropout import rate_of
from ..score.features import NUMBERS, OVER_CACHES
from ..score.programs import Bound, KINDS, Mod, bind, program_of

_MARK = "\n=== "  # before a program's name
_WORDS = ("mask", "accuracy", "v_layout", "out_dtype")
_NUMBERS = {feature.keyword: feature for feature in NUMBERS}
_KEYS_OF = {  # attention: and all ops with attention()'s arguments
    "attention": (*_WORDS, "window", "scale_block", *_NUMBERS, "pad_head_dim", "context", "block_map", "dropout_p",
                  "deterministic"),
    "attention_kvcache": ("mask", "window", *(name for name in _NUMBERS if name in OVER_CACHES), "context", "dtype_kv",
                          "batch_invariant"),
    "append_kv": ("context", "dtype_kv", "interleaved")}
_MAP_USES = {"skips": False, "hides": True}

# keywords: of attention(). programs: by kind. hides: a block map's, or None.
Spec = namedtuple("Spec", "keywords programs hides")


def _pair(value):
    return ":".join("-" if side < 0 else str(side) for side in value)


def _fields(given):
    """Yields pairs (key, text) of arguments that differ from their defaults."""
    for name in _WORDS:
        if given[name] is not None:
            yield name, word(name, tensors.dtype_text(given[name]) if name == "out_dtype" else given[name])
    window, blocks = window_sides(given["window"]), scale_blocks(given["scale_block"] or 0)
    if window != (-1, -1):
        yield "window", _pair(window)
    if blocks != (0, 0):
        yield "scale_block", _pair(blocks)
    for name, feature in _NUMBERS.items():
        if given[name] is not None:
            yield name, repr(feature.read(given[name]))
    for name in ("pad_head_dim", "deterministic"):
        if flag_or_none(name, given[name]) is not None:
            yield name, str(int(given[name]))
    if given["context"] is not None:
        if not isinstance(given["context"], str) or not given["context"].replace(":", "").isalnum():
            raise ValueError(f"context is {given['context']!r}; in a spec it must be None or a target such as 'cpu:4'")
        yield "context", given["context"]
    if given["dropout_p"]:
        yield "dropout_p", repr(rate_of(given["dropout_p"]))
    if given["dtype_kv"] is not None:
        yield "dtype_kv", word("dtype_kv", tensors.dtype_text(given["dtype_kv"]))
    for name in ("batch_invariant", "interleaved"):
        if flag(name, given[name]):
            yield name, "1"
    if flag_or_none("hides", given["hides"]) is not None:
        yield "block_map", "hides" if given["hides"] else "skips"


@with_keywords(dict.fromkeys(_NUMBERS))
def spec(mask=None, window=None, *, is_causal=False, accuracy=None, v_layout=None, out_dtype=None, scale_block=0,
         pad_head_dim=None, context=None, hides=None, score_mod=None, mask_mod=None, dropout_p=0.0, deterministic=None,
         dtype_kv=None, batch_invariant=False, interleaved=False, **numbers):
    """Returns the spec of torch.ops.attune.attention for these keywords of attention(), which are checked. Raises
    ValueError or TypeError.

    context: a target such as "cpu:4". dtype_kv, batch_invariant and interleaved are words of the ops attention_kvcache
    and append_kv. These ops also take mask, window, context, features and programs, as their functions do.
    hides: for a call with block_map, True if the map hides what it does not show (BlockMap.hides).
    score_mod, mask_mod: text of the score language, or a result of attune.score_mod() or attune.mask_mod(). Their
    tensors go into `captures` and their numbers into `scalars`, in the order of the text's declarations, score_mod's
    first; captures_of() returns both.
    dropout_p: the op then needs a seed, which it never draws. deterministic: for gradients, as in attention_backward();
    if left out, it is decided when they are computed."""
    mask = mask_name(mask, is_causal, 0, 0) if mask != "causal" and not causal_flag(is_causal) else "causal"
    given = {
        **locals(), **dict.fromkeys(_NUMBERS), **numbers, "mask": None if mask == "none" else mask,
        "accuracy": None if accuracy == "accurate" else accuracy,
        "v_layout": "transposed" if v_layout_of(v_layout or "rows") else None}
    text = ",".join(f"{key}={value}" for key, value in _fields(given))
    for kind, program in (("score_mod", score_mod), ("mask_mod", mask_mod)):
        if program is not None:
            text += f"{_MARK}{kind}\n{_text_of(kind, program)}"
    return text


def _text_of(kind, program):
    return program_of(kind, program).text if isinstance(program, str) else bind(kind, program).program.text


def captures_of(score_mod=None, mask_mod=None):
    """Returns (captures, scalars) of results of attune.score_mod() and attune.mask_mod(), in the form of
    torch.ops.attune.attention."""
    captures, scalars = [], []
    for kind, program in (("score_mod", score_mod), ("mask_mod", mask_mod)):
        if program is not None:
            bound = bind(kind, program)
            captures += [tensor for _, tensor in bound.captures.values()]
            scalars += [value for _, value in bound.scalars.values()]
    return captures, scalars


def _sides(text):
    return tuple(-1 if side == "-" else int(side) for side in text.split(":"))


_READ = {
    "window": _sides, "scale_block": _sides, "dropout_p": float,
    **{name: feature.type for name, feature in _NUMBERS.items()}, **{
        name: lambda text: text == "1"
        for name in ("deterministic", "batch_invariant", "interleaved", "pad_head_dim")}}


@functools.lru_cache(maxsize=1024)
def parse_spec(text, op="attention"):
    """Returns the Spec of a text, for an op. Raises ValueError if the text is not one of spec()."""
    first, *sections = text.split(_MARK)
    keywords, hides, programs, keys = {}, None, {}, _KEYS_OF[op]
    for field in filter(None, first.split(",")):
        key, equals, value = field.partition("=")
        if key not in keys or not equals or key in keywords:
            raise ValueError(
                f"spec has {field!r}; must be {', '.join(f'{key}=' for key in keys)} of {op}, each once, as "
                f"attune.torch.spec() writes them")
        if key == "block_map":
            if value not in _MAP_USES:
                raise ValueError(f"spec has {field!r}; must be block_map=hides or block_map=skips")
            hides = _MAP_USES[value]
            continue
        try:
            keywords[key] = _READ.get(key, str)(value)
        except ValueError:
            raise ValueError(f"spec has {field!r}; values must be as attune.torch.spec() writes them") from None
    for section in sections:
        kind, newline, program = section.partition("\n")
        if op == "append_kv":
            raise ValueError(f"spec has a program of {kind!r}; append_kv takes none")
        if kind not in KINDS or not newline or kind in programs:
            raise ValueError(f"spec has a program of {kind!r}; must be {' or '.join(KINDS)}, each once")
        programs[kind] = program_of(kind, program)
    return Spec(keywords, {kind: programs[kind] for kind in KINDS if kind in programs}, hides)


class SpecMod(Mod):
    """A program of a spec, with the tensors and numbers of one call."""

    def __init__(self, kind, program, captures, scalars):
        self.kind, self._program = kind, program
        self._captures = {name: (name, tensor) for name, tensor in zip(program.captures, captures)}
        self._scalars = {name: (name, value) for name, value in zip(program.scalars, scalars)}

    def bind(self):
        return Bound(self.kind, self._program, self._captures, self._scalars)


def mods_of(parsed, captures, scalars):
    """Returns attention()'s keywords score_mod and mask_mod."""
    captures, scalars = captures or [], scalars or []
    wanted = [
        sum(len(part(program)) for program in parsed.programs.values())
        for part in (lambda p: p.captures, lambda p: p.scalars)]
    if [len(captures), len(scalars)] != wanted:
        raise ValueError(
            f"captures has {len(captures)} tensors and scalars {len(scalars)} numbers; the spec's programs declare "
            f"{wanted[0]} and {wanted[1]}")
    mods = {}
    for kind, program in parsed.programs.items():
        counts = len(program.captures), len(program.scalars)
        mods[kind] = SpecMod(kind, program, captures[:counts[0]], scalars[:counts[1]])
        captures, scalars = captures[counts[0]:], scalars[counts[1]:]
    return mods
