# SPDX-License-Identifier: Apache-2.0
"""score_mod() and mask_mod(): programs of the score language, made from Python functions or given as text, and their
bindings in a call of attention(). Used by scores.py. trace.py reads functions."""
import functools
import re
from collections import namedtuple

from ..core import tensors
from ..core.library import module
from ..core.torch_state import refuse_gradients, refuse_tangents
from .trace import NAMES, Extent, trace
from .values import CAPTURE_TYPES, MAX_RANK, is_bool, is_number, is_tensor

KINDS = tuple(NAMES)  # in attune_program_kind's order
_DECLARATION = re.compile(r"^\s*//\s*(capture|scalar)\s+(\w+)\s*:\s*(\w+)\s*(?:\[(\d)\])?", re.M)

# handle: an attune_program. text: canonical. captures: type and rank by name. scalars: type by name.
Program = namedtuple("Program", "handle text captures scalars")


# captures: type and rank by name. scalars: type by name.
Declared = namedtuple("Declared", "captures scalars")


def declared_in(canonical):
    declared = _DECLARATION.findall(canonical)
    return Declared({name: (type_, int(rank)) for what, name, type_, rank in declared if what == "capture"},
                    {name: type_ for what, name, type_, _ in declared if what == "scalar"})


@functools.lru_cache(maxsize=1024)
def program_of(kind, text):
    if not isinstance(text, str):
        raise TypeError(f"{kind} is of type {type(text).__name__}; must be the text of a program")
    handle = module.program_parse(KINDS.index(kind), text.encode(), kind.encode())
    canonical = module.program_text(handle)
    return Program(handle, canonical, *declared_in(canonical))


@functools.lru_cache(maxsize=64)
def _type_name(dtype):
    return tensors.dtype_text(dtype)


def _refuse_wide(kind, label, tensor):
    """Raises for numbers beyond 32 bits: kernels read the low 32 bits of an int64. The host sees only tensors on a CPU.
    """
    if tensors.target_of(tensor) != "cpu":
        return
    for extreme in (int(tensor.min()), int(tensor.max())):
        if not -2 ** 31 <= extreme < 2 ** 31:
            raise ValueError(f"{label} holds {extreme}; for {kind} it must hold ints of 32 bits")


def refuse_stop(label, of):
    raise ValueError(
        f"score_mod computes with {label} behind detach or torch.no_grad, where the gradient of {of} would not stop; "
        "for gradients give a function without these, which may read variables that were detached outside")


class Bound:
    """A program with the values of one call. captures, scalars: (label, tensor or number) by name. stopped: names
    (score may be one) whose gradients the function stops; attune's gradients pass all the same."""

    __slots__ = ("kind", "program", "captures", "scalars", "stopped")

    def __init__(self, kind, program, captures, scalars, stopped=()):
        self.kind, self.program, self.stopped = kind, program, stopped
        self.captures = {name: captures[name] for name in program.captures}
        self.scalars = {name: self._checked(*scalars[name], type_) for name, type_ in program.scalars.items()}
        for name, wanted in program.captures.items():
            label, tensor = self.captures[name]
            tensors.check_plain(label, tensor)
            found = (_type_name(tensor.dtype), len(tensor.shape))
            if found != wanted:
                raise ValueError(
                    f"{label} is {found[0]} with {found[1]} dimensions; {kind} declares {wanted[0]} with {wanted[1]}")
            if 0 in tensor.shape or min(tensors.element_strides(label, tensor), default=0) < 0:
                raise ValueError(
                    f"{label} has shape {tuple(tensor.shape)} and strides "
                    f"{tuple(tensors.element_strides(label, tensor))}; for {kind} extents must be at least 1 and "
                    "strides at least 0")
            if wanted[0] == "int64":
                _refuse_wide(kind, label, tensor)
        refuse_tangents(self.captures.values())
        if kind == "mask_mod":
            refuse_gradients(self.captures.values())

    def _checked(self, label, value, type_):
        if type_ == "int" and not -2 ** 31 <= value < 2 ** 31:
            raise ValueError(f"{label} is {value}; for {self.kind} it must be an int of 32 bits")
        return label, float(value)

    def apart_from(self, taken):
        """Returns this, or the same program with new names instead of `taken` ones."""
        clash = [name for name in (*self.captures, *self.scalars) if name in taken]
        if not clash:
            return self
        text, names = self.program.text, {}
        words = set(re.findall(r"\w+", text)) | set(taken)
        for name in clash:
            names[name] = next(f"{name}_{i}" for i in range(2, len(words) + 3) if f"{name}_{i}" not in words)
            text = re.sub(rf"\b{name}\b", names[name], text)
        renamed = lambda given: {names.get(name, name): value for name, value in given.items()}
        return Bound(self.kind, program_of(self.kind, text), renamed(self.captures), renamed(self.scalars),
                     [names.get(name, name) for name in self.stopped])

    def of_head_dim(self, head_dim):
        """Returns the same program, with a number of the call in place of head_dim."""
        text = self.program.text
        words = set(re.findall(r"\w+", text))
        if "head_dim" not in words:
            return self
        name = next(f"head_dim_{i}" for i in range(len(words) + 1) if f"head_dim_{i}" not in words)
        text = re.sub(r"\bhead_dim\b", name, text) + f"\n// scalar {name}: int"
        return Bound(self.kind, program_of(self.kind, text), self.captures,
                     {**self.scalars, name: ("head_dim", head_dim)}, self.stopped)



class Mod:
    """The result of score_mod() and mask_mod(), for attention(). `text`: the program in the score language. A Mod of a
    function can be called like the function, and used inside traced functions."""

    def bind(self):
        """Returns the Bound of a call made now."""
        raise NotImplementedError

    def keep_for_graphs(self, bound):
        """Sets the plain attributes that torch.compile traces in place of this object (torch/graph.py), from the
        current tensors and numbers."""
        self.graph_text = bound.program.text
        self.graph_captures = [tensor for _, tensor in bound.captures.values()]
        self.graph_scalars = [value for _, value in bound.scalars.values()]
        self.graph_labels = [label for label, _ in bound.captures.values()]
        self.graph_stops_score = "score" in bound.stopped
        self.graph_stops = [given for name, given in bound.captures.items() if name in bound.stopped]

    @property
    def text(self):
        return self.bind().program.text

    def __repr__(self):
        return f"<attune.{self.kind}>\n{self.text}"


def _bind_function(kind, function):
    traced, leaves = trace(kind, function)
    given = lambda leaf: leaves[leaf] if isinstance(leaf, int) else leaf  # noqa: E731
    captures = {name: given(leaf) for name, leaf in traced.captures.items()}
    scalars = {
        name: _extent_of(*given(one.capture), one.axis) if isinstance(one, Extent) else given(one)
        for name, one in traced.scalars.items()}
    return Bound(kind, program_of(kind, traced.text), captures, scalars, traced.stopped)


def _extent_of(label, tensor, axis):
    return f"{label}.shape[{axis}]", tensor.shape[axis]


class FunctionMod(Mod):
    def __init__(self, kind, function):
        self.kind, self.traced_function = kind, function
        functools.update_wrapper(self, function, updated=())
        self.keep_for_graphs(self.bind())  # raises now rather than in a call

    def __call__(self, *args):
        return self.traced_function(*args)

    def bind(self):
        return _bind_function(self.kind, self.traced_function)


class TextMod(Mod):
    def __init__(self, kind, text, given):
        if "\0" in text:
            raise ValueError(f"{kind} is {text!r}; must be a text in the score language")
        self.kind, declared, lines = kind, {name for _, name, _, _ in _DECLARATION.findall(text)}, []
        for name, value in given.items():
            if name not in declared:
                lines.append(_declaration(kind, name, value))
        # appended, so that messages count the text's own lines
        self._program = program_of(kind, "\n".join([text, *lines]))
        missing = [name for name in (*self._program.captures, *self._program.scalars) if name not in given]
        if missing:
            raise ValueError(
                f"{kind} reads {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not given; call "
                f"attune.{kind}(text, {missing[0]}=...)")
        self._text, self._given = text, {name: (name, value) for name, value in given.items()}
        self.keep_for_graphs(self.bind())

    def bind(self):
        return Bound(self.kind, self._program, self._given, self._given)

    def __reduce__(self):
        """Returns the text and values: another process does not have this program."""
        return TextMod, (self.kind, self._text, {name: value for name, value in self._given.values()})


class BoundMod(Mod):
    """A Mod of a program that is bound already."""

    def __init__(self, bound):
        self.kind, self._bound = bound.kind, bound
        self.keep_for_graphs(bound)

    def bind(self):
        return self._bound


def _declaration(kind, name, value):
    if is_tensor(value):
        type_ = tensors.dtype_text(value.dtype)
        if type_ not in CAPTURE_TYPES or len(value.shape) > MAX_RANK:
            raise ValueError(
                f"{name} is {type_} with {len(value.shape)} dimensions; for {kind} it must be "
                f"{', '.join(CAPTURE_TYPES)} with at most {MAX_RANK}")
        return f"// capture {name}: {type_}[{len(value.shape)}]"
    if is_bool(value) or is_number(value):
        return f"// scalar {name}: {'bool' if is_bool(value) else 'int' if hasattr(value, '__index__') else 'float'}"
    raise TypeError(f"{name} is of type {type(value).__name__}; for {kind} it must be a tensor or a number")


def made(kind, program, captures):
    """Returns the Mod of a function or text; a Mod is returned unchanged."""
    if isinstance(program, str):
        return TextMod(kind, program, captures)
    if isinstance(program, Mod):
        if program.kind != kind:
            raise ValueError(f"{kind} is a result of attune.{program.kind}(); must be one of attune.{kind}()")
        return program
    if not callable(program):
        raise TypeError(
            f"{kind} is of type {type(program).__name__}; must be a function, a text or a result of attune.{kind}()")
    if captures:
        raise TypeError(
            f"{kind} is a function and {', '.join(captures)} given with it; only a text takes captures, functions read "
            "their variables")
    return FunctionMod(kind, program)


def bind(kind, program):
    """Returns the Bound of attention()'s score_mod or mask_mod."""
    if isinstance(program, (str, Mod)) or not callable(program):
        return made(kind, program, {}).bind()
    return _bind_function(kind, program)


def score_mod(program, **captures):
    """Makes a program that changes each score, for attention(score_mod=). Returns a Mod.

    program: a function (score, b, h, q_idx, kv_idx), as in torch.nn.attention.flex_attention; or text of the score
    language (generator/score/language/parse.hpp), with the tensors and numbers that it names as keywords:
    score_mod("return score - slopes[head] * abs(q_idx - kv_idx);", slopes=slopes). In a text seqlen_q and seqlen_kv
    are the call's numbers of rows and keys, over all documents. Over caches they are the request's, whatever room its
    table has.

    The function runs once, on values that record the operations. It may use arithmetic, comparisons, & | ~ and torch's
    or NumPy's abs, clamp, erf, exp, exp2, floor, gelu, log, log1p, log2, logical_and, logical_not, logical_or, maximum,
    minimum, rsqrt, sigmoid, sign, softplus, sqrt, tanh and where. Floats are fp32. Ints have 32 bits, those of int64
    tensors too; on a CPU larger ones are refused.
    Tensors of its closure are read element by element, tensor[b, h, q_idx] or (tensor * 2)[h], anew in each call.
    Negative indices count from a tensor's end, which costs a selection if they can occur. Indices beyond the ends are
    clamped, as all indices of a text are.
    Ints and floats in its closure and defaults are numbers of the call: other values need no new kernel. Numbers in its
    body and in globals are constants: other values make another program. A function runs again at each call if it reads
    attributes of objects, of os or sys, or imports values that may change.
    A Python `if` on a value raises: use torch.where. A number of the call that Python must know (an if, a key of a
    dict) becomes a constant too; isinstance(number, int) does not count, and is False. torch.compile alone keeps the
    tensors and numbers from the time of this call.

    Gradients pass through all that the function computes. Calls that need gradients raise if detach or torch.no_grad
    inside the function would stop them.
    Raises ValueError or TypeError if the function or text uses something else, and attune.Error if the library refuses
    the text."""
    return made("score_mod", program, captures)


def mask_mod(program, **captures):
    """Makes a program that tells which keys are seen, for attention(mask_mod=). Returns a Mod.

    program: a function (b, h, q_idx, kv_idx) or a text, whose result is a bool. All else is as in score_mod()."""
    return made("mask_mod", program, captures)
