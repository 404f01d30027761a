# SPDX-License-Identifier: Apache-2.0
"""MaskRule: the object that attune's mask function gives a model in place of a mask tensor. All layers of a forward
pass share one. Made in masks.py, read in attention.py."""
import math

from ..score.programs import Mod, mask_mod

try:
    # transformers passes on objects with 4 dimensions that are a tensor or this.
    from torch.nn.attention.flex_attention import BlockMask as _Base
except ImportError:
    _Base = object

_WRITTEN = (
    "this model writes into its attention mask, and attune's is a rule that layers share; the model must copy it "
    "first, as with clone() (load this one with attn_implementation=\"eager\" or \"sdpa\")")
_ADDITIONS = ("add", "__add__", "__radd__", "add_", "__iadd__")
_BINARY = ("and", "or", "xor", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift")
_OPERATORS = (*(f"__{side}{name}__" for name in _BINARY for side in ("", "r")), "__invert__", "__neg__", "__pos__",
              "__abs__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__getitem__", "__contains__",
              "__bool__", "__int__", "__float__", "__index__", "__array__", "__dlpack__", "__dlpack_device__",
              "__reduce_ex__")


class MaskRule(_Base):
    """A mask in the form of keywords for attune.attention().

    shape: (batch, 1, seqlen_q, seqlen_kv), the represented mask's. keys: None, or (start, stop): the keys that any row
    sees, to be cut out of k and v. keywords: mask, window, key_lengths and others for attune.attention(), over the keys
    that are left. as_tensor(): returns the same mask, bool of that shape.

    A model that only passes it on never makes that tensor. In operators, indexing, tensor methods and PyTorch's
    functions a rule acts as its tensor, which equals transformers' mask for SDPA. Added to floats it hides keys, as
    transformers' masks for eager attention do. Writing into it raises TypeError."""

    def __init__(self, shape, device, keys, keywords, as_tensor):
        self._shape, self._device = shape, device
        self.seqlen_kv, self.keys, self.keywords, self._as_tensor = shape[3], keys, keywords, as_tensor
        self._moved, self._made = {}, None

    shape = property(lambda self: _size(self._shape))
    device = property(lambda self: self._device)
    dtype = property(lambda self: _bool())
    ndim = 4
    __hash__ = object.__hash__

    def dim(self):
        return 4

    def size(self, dim=None):
        return self.shape if dim is None else self._shape[dim]

    def numel(self):
        return math.prod(self._shape)

    def is_floating_point(self):
        return False

    def _itself(self, *_, **__):
        return self

    contiguous = detach = bool = _itself

    def to(self, *places, **named):
        """Returns the same rule for layers on another device; for another dtype, the tensor."""
        device = named.get("device", places[0] if places else None)
        if len(places) > 1 and not isinstance(places[1], bool) or hasattr(device, "is_floating_point") or hasattr(
                device, "itemsize") or "dtype" in named:
            return self.tensor().to(*places, **named)
        if device is None or str(device) == str(self._device):
            return self
        if str(device) not in self._moved:
            moved = {name: _moved(value, device) for name, value in self.keywords.items()}
            self._moved[str(device)] = MaskRule(self._shape, device, self.keys, moved, self._as_tensor)
        return self._moved[str(device)]

    def __repr__(self):
        return (f"<attune.MaskRule {self._shape} keys={self.keys} "
                f"{', '.join(f'{name}={value!r}' for name, value in self.keywords.items())}>")

    __str__ = __repr__

    def tensor(self):
        """Returns the mask as bool of this shape, made once."""
        if self._made is None:
            made = self._as_tensor().to(self._device)
            self._made = made, _version_of(made)
        return self._made[0]

    def is_written(self):
        """True if a view of the tensor was written into: the keywords then no longer describe it."""
        return self._made is not None and _version_of(self._made[0]) != self._made[1]

    def __add__(self, bias):
        """Adds a float tensor, a bias of scores: hidden keys get the least number of its dtype, as in transformers' own
        masks."""
        if not _is_of_floats(bias):
            return self.tensor() + (bias.tensor() if isinstance(bias, MaskRule) else bias)
        return bias if self.keys is None and not self.keywords else bias + self._hiding(bias)

    def add(self, other, *, alpha=1, out=None):
        import torch
        return torch.add(self, other, alpha=alpha, **({} if out is None else {"out": out}))

    def _hiding(self, bias):
        """Returns the tensor that hides keys when it is added to a float tensor."""
        return bias.new_zeros(()).masked_fill(~self.tensor().to(bias.device), _least(bias.dtype))

    __radd__ = __add__

    def __setitem__(self, *_):
        raise TypeError(_WRITTEN)

    def __len__(self):
        return self._shape[0]

    def __iter__(self):
        return iter(self.tensor())

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """Calls a function of PyTorch that finds a rule among its arguments."""
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name in _ADDITIONS[:3] and len(args) == 2 and not kwargs:
            rule, other = args if isinstance(args[0], MaskRule) else reversed(args)
            return rule + other
        if name in _ADDITIONS:
            args, kwargs = _as_additions(args, kwargs)
        if name.endswith("_") and not name.endswith("__") and args and isinstance(args[0], MaskRule):
            raise TypeError(_WRITTEN)
        return function(*_tensors(args), **{name: _tensors(value) for name, value in kwargs.items()})

    def __getattr__(self, name):
        if name.startswith("_") or not _is_of_tensors(name):
            raise AttributeError(
                f"{name}: attune's attention mask is a rule in place of a tensor, and has no {name}")
        if name.endswith("_"):
            raise TypeError(_WRITTEN)
        return getattr(self.tensor(), name)


def _operator(name):
    def operator(self, *others):
        return getattr(self.tensor(), name)(*_tensors(others))
    return operator


def _of_tensor(name):
    return property(lambda self: MaskRule.__getattr__(self, name))


for _name in _OPERATORS:
    setattr(MaskRule, _name, _operator(_name))
for _name in ("add", *_BINARY):
    setattr(MaskRule, f"__i{_name}__", MaskRule.__setitem__)
for _name in dir(_Base):
    if not _name.startswith("_") and _name not in vars(MaskRule):
        setattr(MaskRule, _name, _of_tensor(_name))  # not BlockMask's: it has no lists of blocks



def _is_of_floats(value):
    return hasattr(value, "is_floating_point") and value.is_floating_point()


def _as_additions(args, kwargs):
    """Returns the arguments of an addition, with numbers that hide keys in place of a rule that is added to floats."""
    given = {**dict(zip(("input", "other", "alpha"), args)), **kwargs}
    pair = [given.get("input"), given.get("other")]
    rules = [one for one in pair if isinstance(one, MaskRule)]
    floats = [one for one in pair if _is_of_floats(one)]
    if not rules or not floats:
        return args, kwargs
    if given.get("alpha", 1) != 1:
        raise TypeError(
            f"alpha is {given['alpha']} in an addition of attune's attention mask to floats; must be 1, since the mask "
            "hides keys and has no numbers")
    put = lambda one: one._hiding(floats[0]) if isinstance(one, MaskRule) else one
    return tuple(put(one) for one in args), {name: put(one) for name, one in kwargs.items()}


def _tensors(value):
    """Returns the value with each rule in it replaced by the rule's tensor. Looks into tuples and lists."""
    if isinstance(value, MaskRule):
        return value.tensor()
    return type(value)(_tensors(one) for one in value) if type(value) in (tuple, list) else value


def _size(shape):
    from torch import Size
    return Size(shape)


def _bool():
    from torch import bool as found
    return found


def _is_of_tensors(name):
    from torch import Tensor
    return hasattr(Tensor, name)


def _version_of(tensor):
    """Returns how often a tensor was written into; None if it does not count."""
    from torch import compiler
    return None if compiler.is_compiling() or tensor.is_inference() else tensor._version


def _least(dtype):
    from torch import finfo
    return finfo(dtype).min


def _moved(value, device):
    if not isinstance(value, Mod):
        return value.to(device) if hasattr(value, "to") else value
    return of_bound(value.bind(), lambda one: one.to(device) if hasattr(one, "to") else one)


def of_bound(bound, place=lambda one: one):
    """Returns a mask_mod of the same program. Its text is final, so that calls trace nothing. place(): applied to
    captures."""
    given = {**bound.captures, **bound.scalars}
    return mask_mod(bound.program.text, **{name: place(value) for name, (_, value) in given.items()})
