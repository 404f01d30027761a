# SPDX-License-Identifier: Apache-2.0
"""Names of arguments in FlashAttention and PyTorch's SDPA, and attune's names for them. Used by _attention.py in
errors."""
import functools

WORDS = {
    "causal": "mask=\"causal\" or is_causal=True",
    "attn_mask": "mask_tensor (bool, True shows a key) or bias (numbers that are added)",
    "attention_mask": "mask_tensor (bool, True shows a key) or key_lengths", "softmax_scale": "scale",
    "sm_scale": "scale", "window_size": "window", "sliding_window": "window=(keys - 1, 0)", "dropout": "dropout_p",
    "return_softmax_lse": "return_lse", "return_attn_probs": "return_lse",
    "enable_gqa": "nothing: k and v may have fewer heads than q", "learnable_sink": "sinks"}


def explains(function):
    """Decorates a function that is rarely called: its errors tell attune's names of arguments."""
    @functools.wraps(function)
    def call(*arguments, **choices):
        try:
            return function(*arguments, **choices)
        except TypeError as error:
            raise explained(error, choices) from None
    return call


def explained(error, given):
    """Returns a call's TypeError with attune's names of arguments; `error` itself if `given` has no such name."""
    hints = [f"{name} is {WORDS[name]} here" for name in given if name in WORDS]
    return TypeError(f"{error}; {', '.join(hints)}") if hints else error
