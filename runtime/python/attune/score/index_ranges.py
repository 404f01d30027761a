# SPDX-License-Identifier: Apache-2.0
"""Bounds of ints in a score program that are known while a function is traced. Used by functions.py,
trace.py and tensor_values.py.

An index below 0 counts from a tensor's end, as in PyTorch. An index that may be below 0 therefore costs a selection at
each use. A range is (least, most), with None for an unknown bound."""

UNKNOWN = (None, None)
POSITION = (0, None)


def of_constant(value):
    return value, value


def _sum(a, b):
    return tuple(None if x is None or y is None else x + y for x, y in zip(a, b))


def _negated(a):
    return tuple(None if x is None else -x for x in (a[1], a[0]))


def _product(a, b):
    if _is_position(a) and _is_position(b):
        return a[0] * b[0], None if None in (a[1], b[1]) else a[1] * b[1]
    return UNKNOWN if None in (*a, *b) else (min(x * y for x in a for y in b), max(x * y for x in a for y in b))


def _is_position(a):
    return a[0] is not None and a[0] >= 0


def _quotient(a, b):
    """Returns the range of a quotient, rounded down or towards 0: both are the same where the range is known."""
    return (0, a[1]) if _is_position(a) and _is_position(b) else UNKNOWN


def _floor_rest(a, b):
    return (0, None if b[1] is None else max(b[1] - 1, 0)) if _is_position(b) else UNKNOWN


def _rest(a, b):
    return (0, a[1]) if _is_position(a) else UNKNOWN


def _least(a, b):
    mosts = [x for x in (a[1], b[1]) if x is not None]
    return None if None in (a[0], b[0]) else min(a[0], b[0]), min(mosts, default=None)


def _most(a, b):
    leasts = [x for x in (a[0], b[0]) if x is not None]
    return max(leasts, default=None), None if None in (a[1], b[1]) else max(a[1], b[1])


def _either(_, a, b):
    return None if None in (a[0], b[0]) else min(a[0], b[0]), None if None in (a[1], b[1]) else max(a[1], b[1])


def _common_bits(a, b):
    return POSITION if _is_position(a) or _is_position(b) else UNKNOWN


def _joined_bits(a, b):
    return POSITION if _is_position(a) and _is_position(b) else UNKNOWN


# By the text of an operation in functions.py.
_RULES = {
    "{} + {}": _sum, "{} - {}": lambda a, b: _sum(a, _negated(b)), "-{}": _negated, "{} * {}": _product,
    "{} / {}": _quotient, "floordiv({}, {})": _quotient, "floormod({}, {})": _floor_rest, "{} % {}": _rest,
    "min({}, {})": _least, "max({}, {})": _most, "abs({})": lambda a: a
    if _is_position(a) else POSITION, "select({}, {}, {})": _either, "{} & {}": _common_bits, "{} | {}": _joined_bits,
    "{} ^ {}": _joined_bits, "{} >> {}": lambda a, b: POSITION if _is_position(a) else UNKNOWN}


def of_operation(text, ranges, is_of_bool):
    """Returns the range of an operation's result on ints; a bool counts as 0 or 1."""
    if text == "int({})":
        return (0, 1) if is_of_bool else UNKNOWN
    return _RULES[text](*ranges) if text in _RULES else UNKNOWN


def may_be_negative(found):
    return not _is_position(found)
