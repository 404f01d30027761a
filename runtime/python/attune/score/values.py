# SPDX-License-Identifier: Apache-2.0
"""Values of a score program while a Python function is traced. Each operation on one appends a declaration of the score
language (generator/score/language/parse.hpp). The operations are in functions.py; closures.py calls the function."""
import functools
import os
import sys

from ..core import tensors
from .index_ranges import UNKNOWN

BOOL, INT, FLOAT = "bool", "int", "float"
CAPTURE_TYPES = {"fp32": FLOAT, "bf16": FLOAT, "fp16": FLOAT, "int32": INT, "int64": INT, "uint8": INT, "bool": BOOL}
MAX_RANK = 4
_LIBRARIES = ("torch", "numpy", "attune", "functools")
CHOICE = (
    "a Python if, while, and, or, not, min(), max() or chained comparison needs a value that is known only in the "
    "kernel; use torch.where, &, |, ~, torch.minimum and torch.maximum")


class NeedsValue(BaseException):
    """The function needs the value of a number, or a tensor's shape. It is traced again with that value as a constant.
    """

    def __init__(self, leaves):
        super().__init__()
        self.leaves = frozenset(leaves)


def place():
    """Returns the file and line of the traced function."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame = frame.f_back
    return "score program" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def refuse(message):
    raise TypeError(f"{place()}: {message}")


def _operation(name, swapped=False):
    def method(self, other):
        return self.program.operation(name)(other, self) if swapped else self.program.operation(name)(self, other)
    return method


class Operators:
    """The methods that Python, PyTorch and NumPy call on a value. `program`: the Trace that it belongs to."""

    __slots__ = ()
    __array_priority__ = 1000
    for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
        locals()[f"__{_name}__"] = _operation(_name)
        locals()[f"__r{_name}__"] = _operation(_name, True)
    for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
        locals()[f"__{_name}__"] = _operation(_name)
    del _name

    def __neg__(self):
        return self.program.operation("neg")(self)

    def __pos__(self):
        return self

    def __invert__(self):
        return self.program.operation("invert")(self)

    def __abs__(self):
        return self.program.operation("abs")(self)

    def __getattr__(self, name):
        operation = None if name.startswith("__") else self.program.find_operation(name)
        if operation is None:
            raise AttributeError(f"{place()}: .{name} of {self} is not in the score language")
        return functools.partial(operation, self)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return program_of((args, kwargs)).call(function, args, kwargs or {})

    def __array_function__(self, function, types, args, kwargs):
        return self.program.call(function, args, kwargs)

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        if method != "__call__":
            refuse(f"numpy.{ufunc.__name__}.{method} is not in the score language")
        return self.program.call(ufunc, args, kwargs)


class Value(Operators):
    """A bool, int or float of a program.

    text: a name or a literal. leaves: the numbers of the call that it is made from; None if it depends on more. live:
    for a float, the names (the score's and tensors') that gradients reach through it. stopped: the names whose
    gradients a detach or torch.no_grad stops. range: for an int, its range (index_ranges.py)."""

    __slots__ = ("program", "text", "type", "leaves", "live", "stopped", "range")
    shape, ndim, device = (), 0, None

    def __init__(self, program, text, type_, leaves=None, live=frozenset(), stopped=frozenset(), range=UNKNOWN):
        self.program, self.text, self.type, self.leaves, self.live, self.stopped, self.range = (
            program, text, type_, leaves, live, stopped, range)

    def __str__(self):
        return f"a value of type {self.type}"

    __repr__ = __str__

    @property
    def dtype(self):
        torch = sys.modules.get("torch")
        return getattr(torch, {BOOL: "bool", INT: "int32", FLOAT: "float32"}[self.type]) if torch else self.type

    def dim(self):
        return 0

    def __getitem__(self, index):
        return self if index in ((), Ellipsis) else refuse(f"{self} has no dimensions to index")

    def _known(self, otherwise):
        if self.leaves:
            raise NeedsValue(self.leaves)
        refuse(otherwise)

    def __bool__(self):
        self._known(CHOICE)

    def __hash__(self):
        self._known(
            "a set, or the key of a dict, needs a value now; use comparisons (h == 0) and indexed tensors")

    def detach(self):
        return Value(self.program, self.text, self.type, self.leaves, stopped=self.stopped | self.live,
                     range=self.range)

    def __index__(self):
        self._known(
            "an index or a count in Python must be known when the function is traced; a tensor that is indexed by "
            "q_idx and others must be PyTorch's or NumPy's, and in a variable of the function or around it, not a list")

    def __float__(self):
        self._known(
            "float(), int() and the functions of math need a value now; use torch's and numpy's, and .float() and "
            ".int()")

    __int__ = __round__ = __trunc__ = __iter__ = __len__ = __float__


def values_in(arguments):
    """Yields the values among arguments, also in tuples, lists and keywords."""
    if isinstance(arguments, Operators):
        yield arguments
    elif isinstance(arguments, (tuple, list)):
        for one in arguments:
            yield from values_in(one)
    elif isinstance(arguments, dict):
        yield from values_in(list(arguments.values()))


def program_of(arguments):
    return next(values_in(arguments)).program


def is_number(value):
    """True for an int or a float of Python or NumPy, but not for a bool."""
    if type(value) in (int, float):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.integer, numpy.floating))


def is_bool(value):
    numpy = sys.modules.get("numpy")
    return type(value) is bool or (numpy is not None and isinstance(value, numpy.bool_))


def is_tensor(value):
    return tensors.is_torch(value) or tensors.is_numpy(value)
