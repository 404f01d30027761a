# SPDX-License-Identifier: Apache-2.0
"""Operators, methods and functions of PyTorch and NumPy in the score language. Types follow PyTorch: / of ints is a
float, // and % round down, bools count as 0 and 1. Arguments have PyTorch's names. Used by trace.py."""
import math

from ..core.tensors import dtype_text
from .index_ranges import of_operation
from .values import BOOL, FLOAT, INT, NeedsValue, Value, program_of, is_number, refuse, values_in

_MAX_POWER = 64
TABLE = {}


def called(*names):
    def register(function):
        TABLE.update(dict.fromkeys(names, function))
        return function
    return register


def lifted(*arguments):
    program = program_of(arguments)
    return [program.lift(one) for one in arguments]


def _emit(type_, text, *operands):
    made = operands[0].program.emit(type_, text.format(*(one.text for one in operands)), operands)
    if type_ == INT:
        made.range = of_operation(text, [one.range for one in operands], operands[0].type == BOOL)
    return made


def _number(value):
    return _emit(INT, "int({})", value) if value.type == BOOL else value


def _numbers(*arguments):
    """Returns the values as numbers, and the type that holds all."""
    values = [_number(one) for one in lifted(*arguments)]
    return (*values, FLOAT if any(one.type == FLOAT for one in values) else INT)


def as_float(value):
    return value if value.type == FLOAT else _emit(FLOAT, "float({})", value)


@called("bool")
def as_bool(input):
    value, = lifted(input)
    return value if value.type == BOOL else _emit(BOOL, "{} != 0", value)


def _arithmetic(sign, of_bools=None):
    def apply(input, other, alpha=1):
        if alpha != 1:
            other = other * alpha if is_number(other) and is_number(alpha) else TABLE["mul"](other, alpha)
        a, b = lifted(input, other)
        if a.type == b.type == BOOL:
            return _emit(BOOL, f"{{}} {of_bools} {{}}", a,
                         b) if of_bools else refuse(f"'{sign}' takes numbers, not two bools; use ^ or ~")
        a, b, type_ = _numbers(a, b)
        return _emit(type_, f"{{}} {sign} {{}}", a, b)
    return apply


called("add")(_arithmetic("+", "||"))
called("mul", "multiply")(_arithmetic("*", "&&"))
called("sub", "subtract")(_arithmetic("-"))


@called("rsub")
def subtract_from(input, other, alpha=1):
    return TABLE["sub"](other, input, alpha)


@called("truediv", "div", "divide", "true_divide")
def divide(input, other, rounding_mode=None):
    if rounding_mode == "floor":
        return floor_divide(input, other)
    a, b, type_ = _numbers(input, other)
    if rounding_mode == "trunc":
        return _emit(INT, "{} / {}", a, b) if type_ == INT else truncate(divide(a, b))
    return _emit(FLOAT, "{} / {}", as_float(a), b)


@called("floordiv", "floor_divide")
def floor_divide(input, other):
    a, b, type_ = _numbers(input, other)
    return _emit(INT, "floordiv({}, {})", a, b) if type_ == INT else floor(divide(a, b))


@called("mod", "remainder")
def modulo(input, other):
    a, b, type_ = _numbers(input, other)
    return _emit(INT, "floormod({}, {})", a, b) if type_ == INT else a - b * floor(divide(a, b))


@called("fmod")
def c_modulo(input, other):
    a, b, type_ = _numbers(input, other)
    return _emit(INT, "{} % {}", a, b) if type_ == INT else a - b * truncate(divide(a, b))


@called("pow", "power", "float_power")
def power(input, exponent):
    if isinstance(exponent, Value) and exponent.leaves:
        raise NeedsValue(exponent.leaves)
    if next(values_in((exponent,)), None) is not None:
        if not isinstance(input, (int, float)) or not input > 0:
            refuse("a power whose exponent is not constant needs a constant base above 0")
        return TABLE["exp2"](exponent if input == 2 else exponent * math.log2(input))
    if exponent in (0.5, -0.5):
        return TABLE["sqrt" if exponent > 0 else "rsqrt"](input)
    if exponent != int(exponent) or abs(exponent) > _MAX_POWER:
        refuse(f"a power has exponent {exponent}; must be a whole number up to {_MAX_POWER}, 0.5 or -0.5")
    base, type_ = _numbers(input)
    result, times = None, abs(int(exponent))
    while times:
        if times & 1:
            result = base if result is None else result * base
        times >>= 1
        base = base * base if times else base
    if result is None:
        return base.program.lift(1.0 if type_ == FLOAT else 1)
    return result if exponent > 0 else 1.0 / result


@called("square")
def square(input):
    return power(input, 2)


@called("reciprocal")
def reciprocal(input):
    return divide(1.0, input)


def _comparison(sign):
    def apply(input, other):
        a, b = lifted(input, other)
        if not (a.type == b.type == BOOL and sign in ("==", "!=")):
            a, b, _ = _numbers(a, b)
        return _emit(BOOL, f"{{}} {sign} {{}}", a, b)
    return apply


for _names, _sign in ((("lt", "less"), "<"), (("le", "less_equal"), "<="), (("gt", "greater"), ">"),
                      (("ge", "greater_equal"), ">="), (("eq", "equal"), "=="), (("ne", "not_equal"), "!=")):
    called(*_names)(_comparison(_sign))


def _bitwise(sign, of_bools):
    def apply(input, other):
        a, b = lifted(input, other)
        if a.type == b.type == BOOL and of_bools:
            return _emit(BOOL, f"{{}} {of_bools} {{}}", a, b)
        a, b, type_ = _numbers(a, b)
        return _emit(INT, f"{{}} {sign} {{}}", a,
                     b) if type_ == INT else refuse(f"'{sign}' takes bools or ints, not a float; compare it first")
    return apply


for _names, _sign, _of_bools in ((("and", "bitwise_and"), "&", "&&"), (("or", "bitwise_or"), "|",
                                                                       "||"), (("xor", "bitwise_xor"), "^", "!="),
                                 (("lshift", "left_shift", "bitwise_left_shift"), "<<",
                                  None), (("rshift", "right_shift", "bitwise_right_shift"), ">>", None)):
    called(*_names)(_bitwise(_sign, _of_bools))


@called("invert", "bitwise_not")
def invert(input):
    value, = lifted(input)
    if value.type == FLOAT:
        refuse("'~' takes a bool or an int, not a float")
    return _emit(value.type, "!{}" if value.type == BOOL else "~{}", value)


@called("logical_not")
def logical_not(input):
    return invert(as_bool(input))


def _reflected(operation):
    return lambda input, other: operation(other, input)


for _name in ("add", "mul", "truediv", "div", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    called(f"r{_name}")(_reflected(TABLE[_name]))


def _logical(sign):
    return lambda input, other: _emit(BOOL, f"{{}} {sign} {{}}", *map(as_bool, lifted(input, other)))


called("logical_and")(_logical("&&"))
called("logical_or")(_logical("||"))
called("logical_xor")(_logical("!="))


@called("neg", "negative")
def negate(input):
    value, type_ = _numbers(input)
    return _emit(type_, "-{}", value)


@called("abs", "absolute", "fabs")
def absolute(input):
    value, type_ = _numbers(input)
    return _emit(type_, "abs({})", value)


@called("where")
def where(condition, input, other):
    chosen, a, b = lifted(condition, input, other)
    if chosen.type != BOOL:
        refuse(f"the condition of where is of type {chosen.type}; must be a bool (compare it)")
    type_ = BOOL
    if not a.type == b.type == BOOL:
        a, b, type_ = _numbers(a, b)
    return _emit(type_, "select({}, {}, {})", chosen, a, b)


METHODS = {"where": lambda input, condition, other: where(condition, input, other)
           }  # methods with other arguments than the function of their name


@called("masked_fill")
def masked_fill(input, mask, value):
    return where(mask, value, input)


def _extreme(function):
    def apply(input, other):
        a, b, type_ = _numbers(input, other)
        return _emit(type_, f"{function}({{}}, {{}})", a, b)
    return apply


called("minimum", "fmin", "min")(_extreme("min"))
called("maximum", "fmax", "max")(_extreme("max"))


@called("clamp", "clip")
def clamp(input, min=None, max=None):
    result = input
    if min is not None:
        result = TABLE["maximum"](result, min)
    return result if max is None else TABLE["minimum"](result, max)


called("clamp_min")(lambda input, min: clamp(input, min=min))
called("clamp_max")(lambda input, max: clamp(input, max=max))
called("relu")(lambda input, inplace=False: clamp(input, min=0))


def _of_float(function):
    def apply(input):
        return _emit(FLOAT, f"{function}({{}})", as_float(*lifted(input)))
    return apply


for _name in ("tanh", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid"):
    called(_name)(_of_float(_name))
called("expit")(TABLE["sigmoid"])


@called("floor")
def floor(input):
    value, type_ = _numbers(input)
    return value if type_ == INT else _emit(FLOAT, "floor({})", value)


@called("ceil")
def ceil(input):
    value, type_ = _numbers(input)
    return value if type_ == INT else -floor(-value)


@called("trunc", "fix")
def truncate(input):
    value, type_ = _numbers(input)
    return value if type_ == INT else where(value < 0, ceil(value), floor(value))


def to_dtype(value, dtype):
    name = {"float64": "fp32", "double": "fp32", "float": "fp32", "int": "int32", "long": "int64"}.get(
        dtype_text(dtype), dtype_text(dtype))
    if name == "bool":
        return as_bool(value)
    if name == "fp32":
        return as_float(value)
    if name not in ("int32", "int64"):
        refuse(f"a conversion to {name} is not in the score language; must be bool, int32, int64 or float32")
    return value if value.type == INT else _emit(INT, "int({})", value)


@called("to", "type", "astype")
def convert(input, *places, dtype=None, device=None, **_):
    """Returns input in another dtype. A tensor or value as argument means its dtype. Arguments that are not types name
    a device, which values do not have, and are ignored."""
    found = [one for one in (*places, dtype) if isinstance(one, type) or hasattr(one, "itemsize")]
    named = [one for one in places if hasattr(one, "dtype") and not isinstance(one, type)]
    if named:
        return TABLE["type_as"](input, named[0])
    return to_dtype(input, found[0]) if found else input


called("float", "double")(lambda input: as_float(*lifted(input)))
called("int", "long")(lambda input: to_dtype(*lifted(input), "int32"))
called("clone", "contiguous", "squeeze")(lambda input: input)
called("detach")(lambda input: input.detach())


@called("type_as")
def type_as(input, other):
    return to_dtype(
        input, {BOOL: "bool", INT: "int32", FLOAT: "fp32"}[other.type] if isinstance(other, Value) else other.dtype)


OF_FIRST = {convert, type_as}  # only the dtype of their other arguments counts


def _filled(number):
    def apply(input, *size, dtype=None, device=None, requires_grad=False, **keywords):
        if any(tuple(one) if isinstance(one, (tuple, list)) else one for one in (*size, *keywords.values())):
            refuse("a new tensor with dimensions; a program computes one score, whose values have none")
        value, = lifted(input)
        return to_dtype(value.program.lift(number), value.dtype if dtype is None else dtype)
    return apply


called("new_ones", "ones_like")(_filled(1))
called("new_zeros", "zeros_like")(_filled(0))
called("new_full")(lambda input, size, fill_value, **given: _filled(fill_value)(input, size, **given))


@called("full_like")
def full_like(input, fill_value, dtype=None, **_):
    value, = lifted(input)
    return to_dtype(value.program.lift(fill_value), value.dtype if dtype is None else dtype)
