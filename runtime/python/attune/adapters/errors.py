# SPDX-License-Identifier: Apache-2.0
"""Errors in the caller's words: attune's names of arguments become those of the library whose signature was called.
Used by sdpa.py, flex.py, flash/ and flashinfer/."""
import re

from ..core.library import Error
from ..core.tensors import check_dense, is_torch, kind_text

# Argument names that also occur as words of a sentence. They are renamed only if _SAID follows the name.
_WORDS = ("slots", "scale", "chunk", "cos", "sin", "k_cache", "v_cache", "seqlen_q", "seqlen_kv")
_SAID = r"(?= (?:is|has|are|must|overlap|requires)\b| \(| and \w+ (?:are|must|overlap)\b|\[\d)"


def renamed(error, names):
    """Returns the error with attune's argument names replaced by the caller's. names: the caller's name by attune's."""
    text = str(error)
    for own, theirs in names.items():
        text = re.sub(rf"(?:\bcache\.)?\b{own}\b{_SAID if own in _WORDS else ''}", theirs,
                      text)  # the library's messages name lists as members of a struct
    error.args = (text,)
    return error


def blamed(error, names, operands, **others):
    """Returns renamed() of the error; or, after an AttributeError, check_tensors()'s TypeError if there is one.
    Checking tensors only after an error costs other calls nothing."""
    if isinstance(error, AttributeError):
        try:
            check_tensors(operands, **others)
        except TypeError as found:
            return found
    return renamed(error, names)


def blamed_heads_first(error, names, query, key, value):
    """Returns blamed() for tensors [batch, num_heads, seqlen, head_dim]. attention() names unlike shapes of k and v
    with rows before heads; here they are named in the caller's order."""
    text = str(error)
    if isinstance(error, ValueError) and text.startswith("k has shape"):
        return ValueError(f"key has shape {tuple(key.shape)} and query {tuple(query.shape)}; batch and head_dim must "
                          "be equal")
    if isinstance(error, ValueError) and text.startswith("v has shape"):
        return ValueError(f"value has shape {tuple(value.shape)} and key {tuple(key.shape)}; must be equal but for "
                          "head_dim")
    own = {} if "query" in text else names  # a sentence for these functions may show calls of others
    return blamed(error, own, dict(query=query, key=key, value=value))


def check_tensors(operands, **others):
    """Raises unless these are PyTorch tensors, by name. operands: dense ones; others: may be None."""
    for name, x in (*operands.items(), *others.items()):
        if not is_torch(x) and (x is not None or name in operands):
            raise TypeError(f"{name} is {kind_text(x)}; must be a PyTorch tensor")
    for name, x in operands.items():
        check_dense(name, x)


def named(names, function, *given, **choices):
    """Returns function(..). If it raises, arguments in the message are renamed as by renamed(). Graphs keep the names
    of their ops."""
    import torch
    if torch.compiler.is_compiling():
        return function(*given, **choices)
    try:
        return function(*given, **choices)
    except (TypeError, ValueError, Error) as error:
        raise renamed(error, names) from None
