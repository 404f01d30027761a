# SPDX-License-Identifier: Apache-2.0
"""Runs a FlexAttention-style function once on values (values.py), and keeps the program that it writes. Used by
programs.py.

Traces are cached by the function's code and by the types of its closure (closures.py), never by source text."""
import contextlib
import functools
import math
import sys
import types
from collections import namedtuple

from ..core import tensors
from ..core.problem import in_fp32
from ..core.recent import Recent
from . import composed_functions  # noqa: F401  joins TABLE
from .closures import Walk
from .functions import METHODS, OF_FIRST, TABLE, as_bool, as_float
from .index_ranges import POSITION, UNKNOWN, of_constant
from .tensor_values import Captured, Computed, TensorValue
from .values import (BOOL, CAPTURE_TYPES, FLOAT, INT, MAX_RANK, NeedsValue, Value, is_bool, is_number, is_tensor,
                     refuse, values_in)

NAMES = {"score_mod": ("score", "batch", "head", "q_idx", "kv_idx"), "mask_mod": ("batch", "head", "q_idx", "kv_idx")}
SIGNATURES = {"score_mod": "(score, b, h, q_idx, kv_idx)", "mask_mod": "(b, h, q_idx, kv_idx)"}
_TRACES, _FIXED = Recent(512), Recent(512)

# text: in the score language, with its declarations first. captures: by name a leaf's number, or a tensor. scalars: by
# name a leaf's number, or a capture's Extent. stopped: names whose gradients the function stops, as in Value.
Traced = namedtuple("Traced", "text captures scalars stopped")
Extent = namedtuple("Extent", "capture axis")


def signature_of(function):
    import inspect  # imported late: it imports much, and most programs trace nothing
    return inspect.signature(function)


class Trace:
    """One run of the function. fixed: leaves whose value (a tensor's shape) is a constant here."""

    def __init__(self, kind, leaves, fixed):
        self.kind, self.leaves, self.fixed, self.built = kind, list(leaves), fixed, {}
        self._lines, self._declared, self._names, self._own, self._extents = [], [], {}, {}, {}
        self._counts = {"t": 0, "s": 0}
        self._prefix = "" if kind == "score_mod" else "mask_"  # one call may have both kinds

    def operation(self, name):
        return self._of_each_element(TABLE[name])

    def find_operation(self, name):
        operation = METHODS.get(name) or TABLE.get(name)
        return None if operation is None else self._of_each_element(operation)

    def _of_each_element(self, operation):
        """Returns a function for the operation. For whole tensors it delays the operation until an element is read."""
        def apply(*args, **kwargs):
            given = args[:1] if operation in OF_FIRST else (args, kwargs)
            if any(isinstance(one, TensorValue) for one in values_in(given)):
                return TensorValue(self, Computed(self, operation, args, kwargs), is_detached=not _records())
            return operation(*args, **kwargs)
        return apply

    def call(self, function, args, kwargs):
        name = getattr(function, "__name__", str(function)).strip("_")
        library = "numpy" if type(function).__name__ == "ufunc" or "numpy" in str(getattr(function, "__module__",
                                                                                          "")) else "torch"
        name = name.removeprefix("special_")
        operation = (METHODS.get(name) if isinstance(function, types.MethodDescriptorType) else None) or TABLE.get(name)
        if operation is None:
            angles = f"; for angles of positions, index a tensor of precomputed {name}() values" if name in (
                "sin", "cos", "tan") else ""
            refuse(
                f"{library}.{name} is not in the score language; functions are abs, clamp, erf, exp, exp2, floor, "
                f"gelu, log, log1p, log2, logical_and, "
                f"logical_not, logical_or, maximum, minimum, rsqrt, sigmoid, sign, softplus, sqrt, tanh, where and "
                f"functions composed of them{angles}"
            )
        try:
            signature_of(operation).bind(*args, **kwargs)
        except TypeError as error:
            refuse(f"{library}.{name} is in the score language, but not with these arguments: {error}")
        return self._of_each_element(operation)(*args, **kwargs)

    def emit(self, type_, text, operands):
        name = f"v{len(self._lines)}"
        self._lines.append(f"{type_} {name} = {text};")
        known = None if any(
            one.leaves is None for one in operands) else frozenset().union(*(one.leaves for one in operands))
        value = Value(self, name, type_, known)
        if type_ == FLOAT:
            value.live, value.stopped = (frozenset().union(*(getattr(one, part) for one in operands))
                                         for part in ("live", "stopped"))
        return value if _records() else value.detach()

    def lift(self, value):
        """Returns an argument as a Value."""
        if isinstance(value, Value):
            return value
        if isinstance(value, TensorValue):
            refuse(f"{value} is not a value yet: a program reads single elements of tensors")
        if is_tensor(value):
            if len(value.shape) or tensors.target_of(value) != "cpu":
                return self._own_tensor(value)[()]
            value = value.item()
        if is_bool(value):
            return Value(self, "true" if value else "false", BOOL, frozenset())
        if not is_number(value):
            refuse(
                f"{value!r} is of type {type(value).__name__}; must be a bool, int or float, or a single element of a "
                f"tensor")
        if hasattr(value, "__index__"):
            return Value(self, _int_text(int(value)), INT, frozenset(), range=of_constant(int(value)))
        return Value(self, _float_text(float(value)), FLOAT, frozenset())

    def index(self, label, value):
        if value is None or value is Ellipsis or isinstance(value, slice):
            refuse(f"{label} is indexed by {value!r}; must be of type int, since a program reads single elements")
        value = self.lift(value)
        if value.type != INT:
            refuse(f"{label} is indexed by {value}; must be an int" +
                   (" (.int() makes one)" if value.type == FLOAT else ""))
        return value

    def load(self, leaf, indices):
        label, tensor = self.leaves[leaf]
        type_ = tensors.dtype_text(tensor.dtype)
        if type_ not in CAPTURE_TYPES:
            refuse(f"{label} is {type_}; must be one of {', '.join(CAPTURE_TYPES)}")
        if len(indices) > MAX_RANK:
            refuse(f"{label} has {len(indices)} dimensions; must be at most {MAX_RANK}")
        name = self._names.get(leaf)
        if name is None:
            name = self._names[leaf] = self._new_name("t")
            self._declared.append(f"// capture {name}: {type_}[{len(indices)}]")
        text = name + "".join(f"[{one.text}]" for one in indices)
        loaded = self.emit(CAPTURE_TYPES[type_], text, (*indices, Value(self, name, INT, live=frozenset([name]))))
        loaded.range = POSITION if type_ == "uint8" else UNKNOWN
        return loaded

    def extent(self, leaf, axis):
        """Returns the extent of a captured tensor, a number of the call."""
        if leaf in self.fixed:
            return self.lift(self.leaves[leaf][1].shape[axis])
        name = self._extents.get((leaf, axis))
        if name is None:
            name = self._extents[leaf, axis] = self._new_name("s")
            self._declared.append(f"// scalar {name}: int")
        return Value(self, name, INT, range=POSITION)

    def _new_name(self, letter):
        """Returns a name by the order of use, so that renaming a variable does not make another program."""
        self._counts[letter] += 1
        return f"{self._prefix}{letter}{self._counts[letter] - 1}"

    def tensor(self, leaf):
        """Returns the value that replaces a captured tensor."""
        return TensorValue(self, Captured(self, leaf)) if len(self.leaves[leaf][1].shape) else self.load(leaf, ())

    def _own_tensor(self, tensor):
        """Returns the value of a tensor that the walk over the closure does not find, such as an attribute."""
        leaf = self._own.get(id(tensor))
        if leaf is None:
            leaf = self._own[id(tensor)] = len(self.leaves)
            self.leaves.append(("a tensor", tensor))
        return TensorValue(self, Captured(self, leaf))

    def number(self, leaf):
        """Returns the value that replaces a number of the call."""
        value = self.leaves[leaf][1]
        if leaf in self.fixed:
            return value
        type_ = INT if hasattr(value, "__index__") else FLOAT
        name = self._names.get(leaf)
        if name is None:
            name = self._names[leaf] = self._new_name("s")
            self._declared.append(f"// scalar {name}: {type_}")
        return Value(self, name, type_, frozenset([leaf]))

    def run(self, function, num_leaves):
        arguments = [
            Value(self, name, FLOAT, live=frozenset([name])) if name == "score" else Value(
                self, name, INT, range=POSITION) for name in NAMES[self.kind]]
        try:
            signature_of(function).bind(*arguments)
        except TypeError as error:
            raise TypeError(f"{self.kind} is called with {SIGNATURES[self.kind]}: {error}") from None
        with _indexing(self), _recording():
            result = function(*arguments)
        if not isinstance(
                result,
            (Value, TensorValue)) and not is_number(result) and not is_bool(result) and not is_tensor(result):
            raise TypeError(
                f"{self.kind} returns {result!r}; must be {'a score' if self.kind == 'score_mod' else 'a bool'}")
        result = self.lift(result)
        if self.kind == "mask_mod" and result.type != BOOL:
            raise TypeError(f"mask_mod returns {result}; must be a bool (compare it, as in x != 0)")
        result = as_float(result) if self.kind == "score_mod" else as_bool(result)
        text = "\n".join([*self._declared, *self._lines, f"return {result.text};"])
        place = lambda leaf: leaf if leaf < num_leaves else self.leaves[leaf]  # noqa: E731
        captures = {name: place(leaf) for leaf, name in self._names.items() if is_tensor(self.leaves[leaf][1])}
        scalars = {name: leaf for leaf, name in self._names.items() if name not in captures}
        scalars.update({name: Extent(place(leaf), axis) for (leaf, axis), name in self._extents.items()})
        return Traced(text, captures, scalars, result.stopped)


def _int_text(value):
    if not -2 ** 31 < value < 2 ** 31:
        refuse(f"{value} does not fit in an int of 32 bits")
    return str(value) if value >= 0 else f"({value})"


def _float_text(value):
    if math.isnan(value):
        refuse("nan is not in the score language")
    rounded = in_fp32(value)
    if math.isinf(rounded) and not math.isinf(value):
        refuse(f"{value} does not fit in a float of 32 bits")
    text = "INFINITY" if math.isinf(value) else repr(abs(value) if rounded else 0.0)
    if text.partition("e")[0].isdigit():
        text = text.replace("e", ".0e")
    return text if math.copysign(1, value) > 0 else f"(-{text})"


@functools.lru_cache(maxsize=None)
def _mode_type(modes):
    class Indexing(modes.TorchFunctionMode):
        """Sees values as indices of PyTorch's own tensors, such as attributes of objects."""

        def __init__(self, trace):
            super().__init__()
            self._trace = trace

        def __torch_function__(self, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") == "__getitem__" and next(values_in(args[1:]), None) is not None:
                return self._trace._own_tensor(args[0])[args[1]]
            return function(*args, **(kwargs or {}))

    return Indexing


def _indexing(trace):
    modes = sys.modules.get("torch.overrides")
    return contextlib.nullcontext() if modes is None else _mode_type(modes)(trace)


def _recording():
    """Returns a scope in which only the function itself turns gradients off: its trace serves other calls too."""
    torch = sys.modules.get("torch")
    return torch.enable_grad() if hasattr(torch, "enable_grad") else contextlib.nullcontext()


def _records():
    torch = sys.modules.get("torch")
    return not hasattr(torch, "is_grad_enabled") or torch.is_grad_enabled()


def _fixed_value(leaf):
    value = leaf[1]
    return tuple(value.shape) if is_tensor(value) else (type(value), repr(value))


def trace(kind, function):
    """Returns the function's Traced, and the leaves of this call."""
    walk = Walk(function)
    fixed = (_FIXED.find((kind, walk.key)) if walk.is_stable else None) or frozenset()
    while True:
        key = (kind, walk.key, tuple((i, _fixed_value(walk.leaves[i])) for i in sorted(fixed)))
        traced = _TRACES.find(key) if walk.is_stable else None
        if traced is not None:
            return traced, walk.leaves
        try:
            traced = (run := Trace(kind, walk.leaves, fixed)).run(walk.rebuild(run), len(walk.leaves))
        except NeedsValue as needed:
            fixed |= needed.leaves
            continue
        if walk.is_stable:
            _FIXED.keep((kind, walk.key), fixed)
            _TRACES.keep(key, traced)
        return traced, walk.leaves
