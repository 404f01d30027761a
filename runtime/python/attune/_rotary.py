# SPDX-License-Identifier: Apache-2.0
"""rotary_table(): cosines and sines of rotary embeddings for append_kv(), as transformers makes them."""
import array
import ctypes

from . import _tensors as tensors
from ._library import Rotary, check, library
from ._problem import real, whole

_SCALINGS = {"default": 0, "linear": 1, "llama3": 2, "yarn": 3}
_NAMES = {"factor": "factor", "low_freq_factor": "low_freq_factor", "high_freq_factor": "high_freq_factor", "beta_fast": "beta_fast",
          "beta_slow": "beta_slow", "mscale": "mscale", "mscale_all_dim": "mscale_all_dim", "attention_factor": "attention_factor"}
_COLUMNS = 8  # rows of tables begin at multiples of 16 bytes, of 16 bits


def _rotary_of(rotary_dim, base, scaling):
    rotary = Rotary()
    library.attune_rotary_init_sized(ctypes.byref(rotary), ctypes.sizeof(rotary))
    rotary.rotary_dim = whole("rotary_dim", rotary_dim)
    scaling = dict(scaling or {})
    rotary.base = real("base", scaling.pop("rope_theta", base) or base)
    kind = scaling.pop("rope_type", scaling.pop("type", "default")) or "default"
    scaling.pop("type", None)
    if kind not in _SCALINGS:
        raise ValueError(f"scaling has rope_type {kind!r}; accepted are {', '.join(_SCALINGS)}, and frequencies= for others")
    rotary.scaling = _SCALINGS[kind]
    context = scaling.pop("original_max_position_embeddings", None)
    rotary.original_max_position = 0 if context is None else whole("original_max_position_embeddings", context)
    for name, value in scaling.items():
        if name not in _NAMES:
            raise ValueError(f"scaling has {name!r}; accepted are rope_type, rope_theta, original_max_position_embeddings, {', '.join(_NAMES)}")
        if value is not None:
            setattr(rotary, _NAMES[name], real(name, value))
    return rotary


def _numbers(frequencies, count):
    found = [float(number) for number in (frequencies.tolist() if hasattr(frequencies, "tolist") else frequencies)]
    if len(found) != count:
        raise ValueError(f"frequencies has {len(found)} numbers; accepted are {count}, rotary_dim / 2")
    return (ctypes.c_float * count)(*found)


def rotary_table(num_positions, rotary_dim, *, base=10000.0, scaling=None, frequencies=None, first_position=0, like=None):
    """(cos, sin), float32 [num_positions, rotary_dim / 2] each, of angles position * base^(-2 i / rotary_dim): NumPy arrays, or as `like`, tensors of
    PyTorch on its device. Rows begin at multiples of 16 bytes, in 16-bit copies by .bfloat16() or .half() where rotary_dim is a multiple of 16.

    scaling: what a config of transformers has as rope_scaling or rope_parameters, of rope_type default, linear, llama3 or yarn. yarn's attention
    factor is in both tables. frequencies: numbers [rotary_dim / 2] instead, such as a model's inv_freq, whose bits then count. Frequencies and angles
    are rounded to fp32, as models were trained."""
    count = whole("num_positions", num_positions)
    rotary = _rotary_of(rotary_dim, base, scaling)
    pairs = max(rotary.rotary_dim // 2, 0)
    kept = None if frequencies is None else _numbers(frequencies, pairs)
    rotary.frequencies = None if kept is None else ctypes.addressof(kept)
    tables = [array.array("f", bytes(4 * max(count, 0) * pairs)) for _ in range(2)]
    check(library.attune_rotary_table(ctypes.byref(rotary), whole("first_position", first_position), count,
                                      *(table.buffer_info()[0] if table else None for table in tables)))
    return tuple(_as_tensor(table, count, pairs, like) for table in tables)


def _as_tensor(table, count, pairs, like):
    columns = -(-pairs // _COLUMNS) * _COLUMNS
    if like is not None and tensors.is_torch(like):
        import torch
        made = torch.frombuffer(table, dtype=torch.float32).view(count, pairs) if table else torch.empty(0, pairs, device="cpu")
        whole_rows = torch.zeros(count, columns, dtype=torch.float32, device=like.device)
        whole_rows[:, :pairs] = made.to(like.device)
        return whole_rows[:, :pairs]
    import numpy
    whole_rows = numpy.zeros((count, columns), numpy.float32)
    whole_rows[:, :pairs] = numpy.frombuffer(table, numpy.float32).reshape(count, pairs) if table else 0
    return whole_rows[:, :pairs]
