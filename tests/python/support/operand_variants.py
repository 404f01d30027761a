# SPDX-License-Identifier: Apache-2.0
"""Faults of one operand, and unusual but valid forms: variants of a plain tensor, and of a tensor of factors. Used by
operand_table_test.py, which combines them in all pairs."""
from collections import namedtuple

import numpy as np

import fake_torch

# build(array, kind) -> operand. `ok`: for which operands it is accepted: "in" (q, k and v), "out", "lse".
Variant = namedtuple("Variant", "name build ok")


def placed(array, dtype=None, extra=(0,) * 5, order=None, offset=0):
    """Returns a copy whose memory has `extra` more elements per dimension, in another order of dimensions."""
    order = order or range(array.ndim)
    memory = fake_torch.aligned([array.shape[i] + extra[i] for i in order], dtype or array.dtype, offset)
    view = memory.transpose(np.argsort(list(order)))[tuple(slice(0, extent) for extent in array.shape)]
    view[...] = array
    return view


def restrided(array, strides):
    view = np.lib.stride_tricks.as_strided(placed(array, extra=[8] * array.ndim), array.shape, strides)
    return view


def repeated(array):
    """Returns one head repeated for all, by a stride of 0."""
    axis = array.ndim - 2
    one = placed(np.ascontiguousarray(np.take(array, [0], axis)))
    return np.broadcast_to(one, array.shape) if array.ndim == 3 else np.lib.stride_tricks.as_strided(
        one, array.shape, [0 if i == axis else stride for i, stride in enumerate(one.strides)])


def field(array):
    """Returns a field of packed records, whose strides are not a multiple of the element size."""
    records = np.zeros(array.shape, np.dtype([("x", "f4"), ("y", "u1")], align=False))
    records["x"] = array
    return records["x"]


def frozen(array):
    array = placed(array)
    array.flags.writeable = False
    return array


class Subclass(np.ndarray):
    pass


ANY = ("in", "out", "lse")
LAYOUTS = [
    Variant("plain", lambda a, kind: kind(placed(a)), ANY),
    Variant("padded rows", lambda a, kind: kind(placed(a, extra=(0, ) * (a.ndim - 1) + (4, ))), ANY),
    Variant("another order of dimensions",
            lambda a, kind: kind(placed(a, order=(0, 2, 1, 3) if a.ndim == 4 else (1, 0, 2))), ANY),
    Variant("repeated head", lambda a, kind: kind(repeated(a)), ("in", )),
    Variant("every second element", lambda a, kind: kind(placed(np.repeat(a, 2, -1))[..., ::2]), ()),
    Variant("rows of an odd length", lambda a, kind: kind(placed(a, extra=(0, ) * (a.ndim - 1) + (1, ))), ("lse", )),
    Variant("4 bytes off", lambda a, kind: kind(placed(a, offset=4)), ("lse", )),
    Variant("2 bytes off", lambda a, kind: kind(placed(a, offset=2)), ()),
    Variant("overlapping rows", lambda a, kind: kind(restrided(a, (4096, 16, *(16, 4)[4 - a.ndim:]))), ()),
    Variant("no dimensions", lambda a, kind: kind(placed(a).reshape(-1)[:1].reshape(())), ()),
    Variant("a dimension less", lambda a, kind: kind(placed(a)[0]), ()),
    Variant("a dimension more", lambda a, kind: kind(placed(a)[None]), ()),
    Variant("a row less", lambda a, kind: kind(placed(a)[:, 1:]), ()),
    Variant("half of the last dimension",
            lambda a, kind: kind(placed(a, extra=(0, ) * (a.ndim - 1) + (16, ))[..., :a.shape[-1] // 2]), ()),
    Variant("empty", lambda a, kind: kind(placed(a)[:0]), ()), ]


def _of_dtype(name):
    return Variant(name, lambda a, kind: kind(placed(a, name)), ())


DTYPES = [_of_dtype(name) for name in ("float16", "float64", "int32", "uint8", "bool", "complex64")]
NUMPY = [
    _of_dtype(">f4"),
    Variant("objects", lambda a, kind: a.astype(object), ()),
    Variant("a field of records", lambda a, kind: field(a), ()),
    Variant("reversed rows", lambda a, kind: placed(a[:, ::-1])[:, ::-1], ()),
    Variant("read-only", lambda a, kind: frozen(a), ("in", )),
    Variant("over bytes",
            lambda a, kind: np.frombuffer(b"\0" * 64 + a.tobytes(), np.uint8)[64:].view("f4").reshape(a.shape),
            ("in", )),
    Variant("masked", lambda a, kind: np.ma.masked_array(placed(a)), ()),
    Variant("a subclass", lambda a, kind: placed(a).view(Subclass), ANY),
    Variant("a list", lambda a, kind: a.tolist(), ()),
    Variant("a memoryview", lambda a, kind: memoryview(a), ()),
    Variant("a number", lambda a, kind: 1.0, ()),
    Variant("a text", lambda a, kind: "q", ()), ]


def torch_variants(kind, numpy_kind):
    """Returns variants of PyTorch's tensors; `kind` makes one (fake or real), with keywords of fake_torch.Tensor."""
    variants = [Variant("a NumPy array", lambda a, _: placed(a), ()), Variant("a list", lambda a, _: a.tolist(), ())]
    for name, keywords in (("needs a gradient", {"requires_grad": True}), ("without memory", {
            "memory": False}), ("sparse", {"layout": "sparse"}), ("negative bit", {"negative": True}), ("on meta", {
                "on": "meta"})):
        variants.append(Variant(name, lambda a, _, keywords=keywords: kind(placed(a), **keywords), ()))
    for on in numpy_kind:
        variants.append(Variant(f"on {on}", lambda a, _, on=on: kind(placed(a), on=on), ()))
    return variants


# Factors of 8-bit operands [2, heads]: (name, build(heads, kind), accepted, is it 1.0 everywhere)
def _ones(heads, blocks=None, dtype=np.float32):
    return np.ones((2, heads) if blocks is None else (2, heads, blocks), dtype)


FACTORS = [
    ("1.0", lambda h, kind: 1.0, True),
    ("an int", lambda h, kind: 1, True),
    ("NumPy's number", lambda h, kind: np.float64(1), True),
    ("a tensor without dimensions", lambda h, kind: kind(placed(_ones(h))[0, 0:1].reshape(())), True),
    ("a factor a head", lambda h, kind: kind(placed(_ones(h))), True),
    ("one for all heads", lambda h, kind: kind(placed(_ones(1))), True),
    ("with blocks", lambda h, kind: kind(placed(_ones(h, 1))), True),
    ("repeated", lambda h, kind: kind(np.lib.stride_tricks.as_strided(placed(_ones(1)), (2, h), (4, 0))), True),
    ("missing", lambda h, kind: None, False),
    ("a text", lambda h, kind: "1", False),
    ("a list", lambda h, kind: [1.0], False),
    ("True", lambda h, kind: True, False),
    ("NaN", lambda h, kind: float("nan"), False),
    ("below 0", lambda h, kind: -1.0, False),
    ("float64", lambda h, kind: kind(placed(_ones(h, dtype=np.float64))), False),
    ("float16", lambda h, kind: kind(placed(_ones(h, dtype=np.float16))), False),
    ("one dimension", lambda h, kind: kind(placed(_ones(h))[0]), False),
    ("too many heads", lambda h, kind: kind(placed(_ones(h + 1))), False),
    ("too many batches", lambda h, kind: kind(placed(_ones(h).repeat(2, 0))), False),
    ("too many blocks", lambda h, kind: kind(placed(_ones(h, 2))), False),
    ("no heads", lambda h, kind: kind(placed(_ones(h))[:, :0]), False),
    ("2 bytes off", lambda h, kind: kind(placed(_ones(h), offset=2)), False), ]
NUMPY_FACTORS = [("reversed", lambda h, kind: placed(_ones(h))[:, ::-1], False),
                 (">f4", lambda h, kind: _ones(h, dtype=">f4"), False),
                 ("read-only", lambda h, kind: frozen(_ones(h)), True),
                 ("a field of records", lambda h, kind: field(_ones(h)), False),
                 ("masked", lambda h, kind: np.ma.masked_array(_ones(h)), False)]


def torch_factors(kind, elsewhere):
    return [("needs a gradient", lambda h, _: kind(_ones(h), requires_grad=True), False),
            ("a NumPy array", lambda h, _: _ones(h), False),
            ("without memory", lambda h, _: kind(_ones(h), memory=False), False)] + [
                (f"on {on}", lambda h, _, on=on: kind(_ones(h), on=on), False) for on in elsewhere]
