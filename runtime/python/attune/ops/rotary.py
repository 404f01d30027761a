# SPDX-License-Identifier: Apache-2.0
"""rotary_table(): cosines and sines of rotary embeddings for append_kv(), equal to transformers'."""
import array
import math
from collections.abc import Mapping

from ..core import tensors
from ..core.library import module
from ..core.problem import real, whole

_SCALINGS = {"default": 0, "linear": 1, "llama3": 2, "yarn": 3, "proportional": 0}
_NUMBERS = ("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
            "attention_factor")
# Other keys of models' configs, which change no row of a table: the number of rotated columns, the row of each column,
# a factor of q.
_OF_MODELS = ("partial_rotary_factor", "max_position_embeddings", "mrope_section", "mrope_interleaved",
              "llama_4_scaling_beta")
_KEYS = ("rope_type", "type", "rope_theta", "original_max_position_embeddings", "truncate", *_NUMBERS, *_OF_MODELS)
_UNSERVED = {
    "dynamic": "whose base depends on the longest sequence so far",
    "longrope": "whose factors depend on the length of the sequence",
    "axial": "whose angles are those of places in an image"}
_COLUMNS = 8  # rows of 16-bit tables begin at multiples of 16 bytes


def _of_layers(scaling, layer_type):
    """Returns the parameters of one layer type from a model's; the same dictionary if it has no layer types."""
    types = [name for name, value in scaling.items() if value is None or isinstance(value, dict)]
    if not any(isinstance(value, dict) for value in scaling.values()):
        if layer_type is not None:
            raise ValueError(f"layer_type is {layer_type!r} and scaling has no tables of layer types; must be None")
        return scaling
    if layer_type not in types:
        raise ValueError(
            f"scaling has tables of layer types and layer_type is {layer_type!r}; must be "
            f"{' or '.join(repr(name) for name in types)}")
    if scaling[layer_type] is None:
        raise ValueError(f"scaling[{layer_type!r}] is None: layers of this type are not rotated; must be a dictionary")
    return dict(scaling[layer_type])


def _checked(scaling):
    """Returns (type, given parameters) of one layer type, checked."""
    unknown = [name for name in scaling if name not in _KEYS]
    if unknown:
        raise ValueError(f"scaling has {unknown[0]!r}; must have only {', '.join(_KEYS)}")
    given = {name: value for name, value in scaling.items() if value is not None}
    kind = given.get("rope_type", given.get("type", "default"))
    if not isinstance(kind, str):
        raise TypeError(f"scaling has rope_type {kind!r}; must be a name")
    kind = kind or "default"
    if kind not in _SCALINGS:
        why = f", {_UNSERVED[kind]}" if kind in _UNSERVED else ""
        raise ValueError(
            f"scaling has rope_type {kind!r}{why}; must be one of {', '.join(_SCALINGS)}, or give a model's inv_freq "
            f"as frequencies=")
    if kind == "yarn" and "factor" not in given and "max_position_embeddings" in given and given.get(
            "original_max_position_embeddings"):
        given["factor"] = given["max_position_embeddings"] / given[
            "original_max_position_embeddings"]  # as in transformers
    if kind not in ("default", "proportional") and "factor" not in given:
        raise ValueError(f"scaling has rope_type {kind!r} and no factor; must have one")
    if not real("attention_factor", given.get("attention_factor", 1.0)) > 0:
        raise ValueError(f"scaling has attention_factor {given['attention_factor']}; must be above 0, or None")
    if type(given.get("truncate", True)) is not bool:
        raise TypeError(f"scaling has truncate {given['truncate']!r}; must be True or False")
    return kind, given


def _rotary_of(rotary_dim, base, kind, given):
    rotary = module.rotary()
    rotary.rotary_dim = whole("rotary_dim", rotary_dim)
    rotary.base = real("base", given.get("rope_theta") or base)
    rotary.scaling = _SCALINGS[kind]
    rotary.original_max_position = whole("original_max_position_embeddings",
                                         given.get("original_max_position_embeddings", 0))
    for name in _NUMBERS:
        if given.get(name) or (name in given and
                               not name.startswith("beta_")):  # a beta of 0 is also transformers' default
            setattr(rotary, name, real(name, given[name]))
    return rotary


def _proportional(rotary, given):
    """Returns frequencies whose last pairs are 0: those columns are not rotated. rotary_dim is the head dim."""
    part, factor = real("partial_rotary_factor", given.get("partial_rotary_factor", 1.0)), real(
        "factor", given.get("factor", 1.0))
    if not 0 <= part <= 1 or not factor > 0:
        raise ValueError(
            f"scaling has partial_rotary_factor {part} and factor {factor}; must be from 0 to 1, and above 0")
    turned = int(part * rotary.rotary_dim // 2)
    return [
        rotary.base**(-2 * pair / rotary.rotary_dim) / factor if pair < turned else 0.0
        for pair in range(rotary.rotary_dim // 2)]


def _yarn_between_pairs(rotary):
    """Returns yarn's frequencies with a ramp that begins and ends between pairs (truncate: False). The library's ramp
    begins and ends at whole pairs."""
    dim, base, context = rotary.rotary_dim, rotary.base, rotary.original_max_position
    if context < 1 or base == 1 or dim < 2 or not rotary.beta_fast >= rotary.beta_slow > 0:
        return None  # the library raises
    pair_of = lambda turns: dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = max(pair_of(rotary.beta_fast), 0.0), min(pair_of(rotary.beta_slow), dim - 1.0)
    high += 0.001 if low == high else 0.0
    found = []
    for pair in range(dim // 2):
        ramp, plain = min(max((pair - low) / (high - low), 0.0), 1.0), base ** (-2 * pair / dim)
        found.append(plain / rotary.factor * ramp + plain * (1 - ramp))
    return found


def _frequencies_of(rotary, kind, given):
    """Returns frequencies that the library cannot make itself; None for others."""
    if kind == "proportional":
        return _proportional(rotary, given)
    return _yarn_between_pairs(rotary) if kind == "yarn" and not given.get("truncate", True) else None


def _numbers(frequencies, count):
    shape, wanted = getattr(frequencies, "shape", None), f"must be {count} numbers, rotary_dim / 2"
    if not isinstance(frequencies, (tuple, list)) and (shape is None or len(shape) != 1):
        found = f"of type {type(frequencies).__name__}" if shape is None else f"a tensor of shape {tuple(shape)}"
        raise TypeError(f"frequencies is {found}; {wanted}")
    if shape is not None and str(getattr(frequencies, "device", "cpu")) == "meta":
        raise ValueError(f"frequencies is a tensor without memory; {wanted}")
    found = [real("frequencies", one) for one in (frequencies if shape is None else frequencies.tolist())]
    if len(found) != count:
        raise ValueError(f"frequencies has {len(found)} numbers; must be {count}, rotary_dim / 2")
    return array.array("f", found).tobytes()


def rotary_table(num_positions, rotary_dim, *, base=10000.0, scaling=None, layer_type=None, frequencies=None,
                 first_position=0, like=None):
    """Returns (cos, sin), float32 [num_positions, rotary_dim / 2] each, of the angles position * base^(-2 i /
    rotary_dim). They are NumPy arrays, or PyTorch tensors on the device of `like`.

    Rows begin at multiples of 16 bytes; in 16-bit copies by .bfloat16() or .half() too, if rotary_dim is a multiple of
    16.
    scaling: rope_scaling or rope_parameters of a transformers config, with rope_type default, linear, llama3, yarn or
    proportional. yarn's attention factor is in both tables. rotary_dim counts the rotated columns, head_dim times
    partial_rotary_factor; for proportional it is head_dim, and the factor tells which columns are rotated. Sections of
    multimodal positions choose among a table's rows.
    layer_type: which of a config's tables to use if it has several, by the names in config.layer_types. frequencies:
    numbers [rotary_dim / 2] instead, such as a model's inv_freq, used bit by bit. Frequencies and angles are rounded to
    fp32, as in training.
    Raises ValueError for dynamic, longrope and axial, which need more than one table, and ValueError or TypeError if
    arguments do not fit."""
    count = whole("num_positions", num_positions)
    if count >= 2 ** 31:
        raise ValueError(f"num_positions is {count}; must be below 2^31")
    tensors.check_like(like)
    if scaling is not None and not isinstance(scaling, Mapping):
        raise TypeError(f"scaling is of type {type(scaling).__name__}; must be a dictionary or None")
    kind, given = _checked(_of_layers(dict(() if scaling is None else scaling), layer_type))
    rotary = _rotary_of(rotary_dim, base, kind, given)
    if frequencies is None:
        frequencies = _frequencies_of(rotary, kind, given)
    pairs = max(rotary.rotary_dim // 2, 0)
    rotary.frequencies = None if frequencies is None else _numbers(frequencies, pairs)
    try:
        tables = [array.array("f", bytes(4 * max(count, 0) * pairs)) for _ in range(2)]
    except MemoryError:
        raise ValueError(
            f"num_positions is {count}; tables of {pairs} columns must fit into memory") from None
    module.rotary_table(rotary, whole("first_position", first_position), count,
                        *(table.buffer_info()[0] if table else None for table in tables))
    return tuple(_as_tensor(table, count, pairs, like) for table in tables)


def _as_tensor(table, count, pairs, like):
    columns = -(-pairs // _COLUMNS) * _COLUMNS
    if like is not None and tensors.is_torch(like):
        import torch
        made = torch.frombuffer(table, dtype=torch.float32).view(count, pairs) if table else torch.empty(
            0, pairs, device="cpu")
        whole_rows = torch.zeros(count, columns, dtype=torch.float32, device=like.device)
        whole_rows[:, :pairs] = made.to(like.device)
        return whole_rows[:, :pairs]
    import numpy
    whole_rows = numpy.zeros((count, columns), numpy.float32)
    whole_rows[:, :pairs] = numpy.frombuffer(table, numpy.float32).reshape(count, pairs) if table else 0
    return whole_rows[:, :pairs]
