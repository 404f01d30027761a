# SPDX-License-Identifier: Apache-2.0
"""Truth values: one reading of every flag that a caller gives, in all signatures. Texts, numbers and lists are no answers: "False" would count as true.
torch.compile traces flag() as _graph.traced_flag()."""
import sys

from ._torch import in_graphs, untraced

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
    """Returns True or False of a bool of Python or NumPy, or of a bool tensor of PyTorch on the CPU that has no axes. Refuses all else by `name`; `words`: what
    it must be."""
    if value is True or value is False:
        return value
    return _read(name, value, words)


def flag_or_none(name, value, what_none_is=""):
    """Returns flag() of what may be None, too. `what_none_is`: said behind the words of a refusal."""
    return None if value is None else flag(name, value, _OR_NONE + what_none_is)


def is_deterministic(asked):
    """Returns whether gradients are to have the same bits in every run; `asked` None: as torch.use_deterministic_algorithms() says now."""
    if asked is None:
        enabled = getattr(sys.modules.get("torch"), "are_deterministic_algorithms_enabled", None)
        return enabled is not None and enabled()
    return flag_or_none("deterministic", asked, ", which is what torch.use_deterministic_algorithms() was told")
