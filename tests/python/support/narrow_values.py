# SPDX-License-Identifier: Apache-2.0
"""Values of all codes of 8-bit types in float64, for tests that decode caches and quantised tensors themselves."""
import numpy as np

NARROW = {"e4m3": (3, 7, 0x7E),
          "e5m2": (2, 15, 0x7B)}  # bits of the fraction, bias of the exponent, largest finite code


def values_of_codes(name):
    """Returns float64 [256], the values of an 8-bit type's codes."""
    if name == "int8":
        return np.arange(256).astype(np.uint8).view(np.int8).astype(np.float64)
    mantissa, bias, last = NARROW[name]
    code = np.arange(256)
    exponent, fraction = (code >> mantissa) & ((1 << (7 - mantissa)) - 1), code & ((1 << mantissa) - 1)
    values = np.where(exponent > 0, (1 + fraction / 2.0**mantissa) * 2.0**(exponent - bias),
                      fraction * 2.0**(1 - bias - mantissa))
    return np.where((code & 0x7F) > last, np.nan, values * np.where(code & 0x80, -1, 1))
