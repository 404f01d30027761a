# SPDX-License-Identifier: Apache-2.0
"""Reads flags, in the same way for all functions. Texts, numbers and lists raise, because "False" would count as true.
torch.compile traces flag() as torch/graph.py's traced_flag()."""
import sys

from .torch_state import in_graphs, untraced

_BOTH, _OR_NONE = "True or False", "True, False or None"


def refuse_flag(name, value, words=_BOTH):
    raise TypeError(f"{name} is {value!r}; must be {words}")


@untraced
def _read(name, value, words):
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.bool_):
        return bool(value)
    if type(value) is getattr(torch, "Tensor",
                              None) and value.dtype is torch.bool and value.dim() == 0 and value.device.type == "cpu":
        return bool(value)
    refuse_flag(name, value, words)


@in_graphs("traced_flag")
def flag(name, value, words=_BOTH):
    """Returns True or False for a bool of Python or NumPy, or for a PyTorch bool tensor without axes on the CPU. Raises
    TypeError for other values, with `name`. words: what it must be."""
    if value is True or value is False:
        return value
    return _read(name, value, words)


def flag_or_none(name, value, what_none_is=""):
    """Returns flag(), or None for None. what_none_is: appended to the words of the message."""
    return None if value is None else flag(name, value, _OR_NONE + what_none_is)


def is_deterministic(asked):
    """True if gradients must have the same bits in every run. asked: None follows torch.use_deterministic_algorithms()
    now."""
    if asked is None:
        enabled = getattr(sys.modules.get("torch"), "are_deterministic_algorithms_enabled", None)
        return enabled is not None and enabled()
    return flag_or_none("deterministic", asked, " (the value given to torch.use_deterministic_algorithms())")
