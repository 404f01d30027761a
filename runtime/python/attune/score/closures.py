# SPDX-License-Identifier: Apache-2.0
"""Finds the values that a Python function uses besides its arguments: tensors and numbers in closures, defaults and
globals, also of functions that it calls. Used by trace.py.

One walk returns three things: a key of everything that the traced program depends on, the leaves (tensors and numbers
of the call), and a way to build the function again with other values in place of the leaves."""
import dis
import functools
import os
import sys
import types

from .values import is_bool, is_number, is_tensor

# Python's own modules whose contents programs change: os.environ, sys.modules.
_CHANGING = ("os", "sys", "importlib")
_LOOKING = {"globals", "locals", "vars", "eval", "exec", "__import__"}  # functions that read variables no walk finds
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)


@functools.lru_cache(maxsize=1024)
def _is_fixed_module(name):
    """True if a module's contents do not change: PyTorch's, NumPy's and Python's own modules, but not a file that hides
    one of these."""
    top = (name or "").partition(".")[0]
    if top in ("torch", "numpy"):
        return True
    if top not in sys.stdlib_module_names or top in _CHANGING or top == "__main__":
        return False
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is None or os.path.realpath(file).startswith(os.path.dirname(os.path.realpath(os.__file__)))


@functools.lru_cache(maxsize=1024)
def _global_names(code):
    names = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_global_names(constant))
    return tuple(sorted(names))


@functools.lru_cache(maxsize=1024)
def _looks_elsewhere(code):
    """True if the code reads values that a walk cannot find: it imports modules that may change, or looks up variables
    by name."""
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME" and not _is_fixed_module(one.argval):
            return True
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and one.argval in _LOOKING:
            return True
    return any(_looks_elsewhere(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))


class Walk:
    """One walk over a function.

    key: if is_stable is True, equal keys give the same program. An object whose contents the walk cannot compare makes
    is_stable False. leaves: pairs of a label and a tensor or number. rebuild(trace): returns the function, with
    trace.tensor(leaf) and trace.number(leaf) in place of the leaves."""

    def __init__(self, function):
        self.leaves, self.is_stable = [], True
        self._of_tensors, self._of_cells, self._functions = {}, {}, {}
        self.key, self.rebuild = self._visit(function, "the function", False)

    def _leaf(self, label, value):
        self.leaves.append((label, value))
        return len(self.leaves) - 1

    def _visit(self, value, label, is_bound):
        """Returns (key, rebuild). is_bound: True if numbers belong to the call; otherwise they are constants."""
        if is_tensor(value):
            return self._tensor(value, label)
        if is_bound and is_number(value) and not is_bool(value):
            leaf = self._leaf(label, value)
            is_float = not hasattr(value, "__index__")
            return ("number", is_float, leaf), lambda trace: trace.number(leaf)
        constant = lambda trace: value
        if type(value) in _CONSTANTS:
            return (type(value), repr(value)), constant
        if type(value) in (tuple, list):
            parts = [self._visit(one, f"{label}[{i}]", False) for i, one in enumerate(value)]
            return (type(value), *(key for key, _ in parts)), lambda trace: type(value)(part(trace)
                                                                                        for _, part in parts)
        if type(value) is dict:
            parts = {name: self._visit(one, f"{label}[{name!r}]", False) for name, one in value.items()}
            key = tuple((type(name), repr(name), part[0]) for name, part in parts.items())
            return (dict, key), lambda trace: {name: part(trace) for name, (_, part) in parts.items()}
        if type(value) is types.FunctionType:
            return self._function(value)
        if type(value) is types.MethodType:
            function, function_rebuild = self._visit(value.__func__, label, False)
            owner, owner_rebuild = self._visit(value.__self__, label, False)
            return ("method", function,
                    owner), lambda trace: types.MethodType(function_rebuild(trace), owner_rebuild(trace))
        if type(value) is functools.partial:
            parts = [self._visit(value.func, label, False)] + [
                self._visit(one, f"an argument of {label}", True) for one in value.args]
            named = {name: self._visit(one, name, True) for name, one in value.keywords.items()}
            key = ("partial", *(part[0] for part in parts), *((name, part[0]) for name, part in named.items()))
            given = lambda trace: {name: part(trace) for name, (_, part) in named.items()}
            return key, lambda trace: functools.partial(*(part(trace) for _, part in parts), **given(trace))
        if type(value).__name__ == "FunctionMod":  # made by attune.score_mod(function)
            return self._visit(value.traced_function, label, False)
        return self._other(value), constant

    def _other(self, value):
        if type(value) is types.ModuleType:
            self.is_stable &= _is_fixed_module(value.__name__)
        elif isinstance(value, types.BuiltinFunctionType):
            # functions of modules and classes are stable; methods bound to other objects are not
            self.is_stable &= isinstance(value.__self__, (types.ModuleType, type, type(None)))
        elif isinstance(value, type):
            self.is_stable &= _is_fixed_module(value.__module__)
        elif type(value).__name__ in ("dtype", "device", "ufunc") or is_bool(value) or is_number(value):
            return str(type(value)), repr(value)
        else:
            self.is_stable = False
        return "object", id(value)

    def _tensor(self, tensor, label):
        leaf = self._of_tensors.get(id(tensor))
        if leaf is None:
            leaf = self._of_tensors[id(tensor)] = self._leaf(label, tensor)
        return ("tensor", leaf, tensor.dtype, len(tensor.shape)), lambda trace: trace.tensor(leaf)

    def _cell(self, cell, label):
        known = self._of_cells.get(id(cell))
        if known is None:
            try:
                content = cell.cell_contents
            except ValueError:  # not bound yet
                return "empty", None
            known = self._of_cells[id(cell)] = self._visit(content, label, True)
        return known

    def _function(self, function):
        if id(function) in self._functions:
            number = self._functions[id(function)]
            return ("function", number), lambda trace: trace.built[number]
        number = self._functions[id(function)] = len(self._functions)
        code, is_fixed = function.__code__, _is_fixed_module(function.__module__)
        if is_fixed and not function.__closure__:
            return ("fixed", code), lambda trace: trace.built.setdefault(number, function)
        self.is_stable &= is_fixed or not _looks_elsewhere(code)
        cells = [self._cell(cell, name) for name, cell in zip(code.co_freevars, function.__closure__ or ())]
        names = code.co_varnames[:code.co_argcount][code.co_argcount - len(function.__defaults__ or ()):]
        defaults = [self._visit(one, name, True) for name, one in zip(names, function.__defaults__ or ())]
        keywords = {name: self._visit(one, name, True) for name, one in (function.__kwdefaults__ or {}).items()}
        attributes = {
            name: self._visit(one, f"{function.__name__}.{name}", True)
            for name, one in vars(function).items() if name[:2] != "__"}
        found = () if is_fixed else [name for name in _global_names(code) if name in function.__globals__]
        globals_ = {name: self._visit(function.__globals__[name], name, False) for name in found}
        named = (*keywords.items(), *globals_.items(), *((f".{name}", part) for name, part in attributes.items()))
        key = ("code", code, *(key for key, _ in (*cells, *defaults)), *((name, key) for name, (key, _) in named))

        def rebuild(trace):
            if number in trace.built:
                return trace.built[number]
            scope, new_cells = dict(function.__globals__), tuple(types.CellType() for _ in cells)
            made = trace.built[number] = types.FunctionType(code, scope, function.__name__, None, new_cells)
            for cell, (_, part) in zip(new_cells, cells):
                if part is not None:
                    cell.cell_contents = part(trace)
            vars(made).update((name, part(trace)) for name, (_, part) in attributes.items())
            made.__defaults__ = tuple(part(trace) for _, part in defaults) or None
            made.__kwdefaults__ = {name: part(trace) for name, (_, part) in keywords.items()} or None
            scope.update({name: part(trace) for name, (_, part) in globals_.items()})
            return made

        return key, rebuild
