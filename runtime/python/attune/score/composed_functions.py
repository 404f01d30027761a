# SPDX-License-Identifier: Apache-2.0
"""Functions of PyTorch and NumPy that the score language lacks, composed of those that it has. Each step has the error
of an fp32 rounding. They join the table of functions.py. Used by trace.py."""
from .functions import TABLE, as_float, called, lifted
from .values import BOOL, refuse

# _ERF_NEAR: erf(x) / x for |x| up to 1, in powers of x * x. _ERF_FAR: log(1 - erf(x)) for 1 to 4, in powers of x - 2.
# Both have the least maximum error, fitted in fp64: 1e-9.
_ERF_NEAR = (1.1283791065216064, -0.3761262595653534, 0.11283600330352783, -0.02685444988310337, 0.0051895445212721825,
             -0.000802091381046921, 7.889343396527693e-05)
_ERF_FAR = (-5.364941120147705, -4.418159484863281, -0.9237530827522278, -0.016487272456288338, 0.0035436865873634815,
            -0.0007127177086658776, 0.00018557468138169497)
_ODD_PARTS = (1, 1 / 3, 1 / 5, 1 / 7, 1 / 9, 1 / 11, 1 / 13)  # log((1 + s) / (1 - s)) / (2 s), in powers of s * s


def _polynomial(factors, x):
    result = factors[-1]
    for factor in reversed(factors[:-1]):
        result = result * x + factor
    return result


def _where(condition, input, other):
    return TABLE["where"](condition, input, other)


@called("sign", "sgn")
def sign(input):
    value, = lifted(input)
    if value.type == BOOL:
        return value
    one = 1.0 if value.type == "float" else 1
    return _where(value > 0, one, _where(value < 0, -one, 0 * one))


@called("log1p")
def log1p(input):
    """Returns log(1 + x). Near 0, where 1 + x loses bits, it uses powers of x / (2 + x)."""
    value = as_float(*lifted(input))
    part = value / (value + 2.0)
    return _where(abs(value) < 0.4, 2.0 * part * _polynomial(_ODD_PARTS, part * part), TABLE["log"](value + 1.0))


@called("softplus")
def softplus(input, beta=1.0, threshold=20.0):
    value = as_float(*lifted(input))
    scaled = value * beta
    return _where(scaled > threshold, value, log1p(TABLE["exp"](scaled)) / beta)


@called("erf")
def erf(input):
    value = as_float(*lifted(input))
    size = abs(value)
    near, far = value * _polynomial(_ERF_NEAR, value * value), 1.0 - TABLE["exp"](_polynomial(
        _ERF_FAR, TABLE["minimum"](size, 4.0) - 2.0))
    return _where(size <= 1.0, near, _where(value < 0, -far, far))


@called("gelu")
def gelu(input, approximate="none"):
    if approximate not in ("none", "tanh"):
        refuse(f"gelu has approximate={approximate!r}; must be 'none' or 'tanh'")
    value = as_float(*lifted(input))
    if approximate == "none":
        return 0.5 * value * (1.0 + erf(value * 0.5 ** 0.5))
    return 0.5 * value * (1.0 + TABLE["tanh"]((value + 0.044715 * value * value * value) * 0.7978845608028654))
