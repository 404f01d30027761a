# SPDX-License-Identifier: Apache-2.0
"""Names of arguments that people bring from FlashAttention and PyTorch's SDPA, and what they are called here. Used by _attention.py for errors."""
import functools

WORDS = {
    "causal": "mask=\"causal\" or is_causal=True",
    "attn_mask": "mask_tensor (bool, True shows a key) or bias (numbers that are added)",
    "attention_mask": "mask_tensor (bool, True shows a key) or key_lengths", "softmax_scale": "scale",
    "sm_scale": "scale", "window_size": "window", "sliding_window": "window=(keys - 1, 0)", "dropout": "dropout_p",
    "return_softmax_lse": "return_lse", "return_attn_probs": "return_lse",
    "enable_gqa": "nothing: k and v may have fewer heads than q", "learnable_sink": "sinks"}


def explains(function):
    """A decorator of functions that are not called often: their errors say what arguments are called here."""
    @functools.wraps(function)
    def call(*arguments, **choices):
        try:
            return function(*arguments, **choices)
        except TypeError as error:
            raise explained(error, choices) from None
    return call


def explained(error, given):
    """The TypeError of a call, with what its arguments are called here; `error` itself where no name of `given` is such a habit."""
    hints = [f"{name} is {WORDS[name]} here" for name in given if name in WORDS]
    return TypeError(f"{error}; {', '.join(hints)}") if hints else error
