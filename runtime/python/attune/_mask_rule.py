# SPDX-License-Identifier: Apache-2.0
"""MaskRule: what attune's mask function gives a model in the place of a mask tensor. All layers of a forward pass share one. Made in
_transformers_masks.py, read in _transformers_attention.py."""
from ._programs import Mod, mask_mod

try:
    from torch.nn.attention.flex_attention import BlockMask as _Base  # transformers passes on what is 4-dimensional and a tensor or this
except ImportError:
    _Base = object

_NO_TENSOR = ("this model computes with its attention mask itself, and attune's mask is no tensor; accepted are models whose attention goes "
              "through transformers' AttentionInterface: load this one with attn_implementation=\"eager\" or \"sdpa\"")


class MaskRule(_Base):
    """shape: (batch, 1, seqlen_q, seqlen_kv), the mask that it stands for. keys: None, or (start, stop): the keys that any row sees, to be
    cut out of k and v. keywords: for attune.attention(): mask, window, key_lengths and others, of the keys that are left. as_tensor(): the same mask, bool of
    that shape, for models that add it to a bias. Immutable."""

    def __init__(self, shape, device, keys, keywords, as_tensor):
        self._shape, self._device = shape, device
        self.seqlen_kv, self.keys, self.keywords, self._as_tensor = shape[3], keys, keywords, as_tensor
        self._moved = {}

    shape = property(lambda self: self._shape)
    device = property(lambda self: self._device)
    ndim = 4

    def dim(self):
        return 4

    def size(self, axis=None):
        return self._shape if axis is None else self._shape[axis]

    def contiguous(self):
        return self

    def detach(self):
        return self

    def to(self, device, *_, **__):
        """The same for layers on another device."""
        if str(device) == str(self._device):
            return self
        if str(device) not in self._moved:
            moved = {name: _moved(value, device) for name, value in self.keywords.items()}
            self._moved[str(device)] = MaskRule(self._shape, device, self.keys, moved, self._as_tensor)
        return self._moved[str(device)]

    def __repr__(self):
        return f"<attune.MaskRule {self._shape} keys={self.keys} {', '.join(f'{name}={value!r}' for name, value in self.keywords.items())}>"

    __str__ = __repr__

    def _refuse(self, *_, **__):
        raise TypeError(_NO_TENSOR)

    def tensor(self):
        return self._as_tensor().to(self._device)

    def __add__(self, bias):
        """A float tensor is a bias of scores: what is hidden gets the least number of its dtype, as of transformers' own masks."""
        if not hasattr(bias, "is_floating_point") or not bias.is_floating_point():
            self._refuse()
        if self.keys is None and not self.keywords:
            return bias
        return bias + bias.new_zeros(()).masked_fill(~self._as_tensor().to(bias.device), _least(bias.dtype))

    __radd__ = __add__
    __mul__ = __rmul__ = __sub__ = __rsub__ = __getitem__ = __invert__ = __and__ = __rand__ = __len__ = _refuse

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{name}: {_NO_TENSOR}")


def _least(dtype):
    from torch import finfo
    return finfo(dtype).min


def _moved(value, device):
    if not isinstance(value, Mod):
        return value.to(device) if hasattr(value, "to") else value
    return of_bound(value.bind(), lambda one: one.to(device) if hasattr(one, "to") else one)


def of_bound(bound, place=lambda one: one):
    """A mask_mod of the same program, whose text is settled: a call of it traces nothing. place(): of what it captures."""
    given = {**bound.captures, **bound.scalars}
    return mask_mod(bound.program.text, **{name: place(value) for name, (_, value) in given.items()})
