# SPDX-License-Identifier: Apache-2.0
"""FlashAttention's functions on attune. They take the arguments of its versions 2, 3 and 4, or refuse them with a
reason.

    import attune.flash
    attune.flash.install()        # from now on `import flash_attn` gets attune

Tensors are [batch, seqlen, num_heads, head_dim], as in attention(). Windows are those of versions 2 and 3. version_3.py
has the order of version 3's arguments. cute.py has version 4's signatures, and windows whose sides are below 0."""
from .dense import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func  # noqa: F401
from .imports import install, uninstall  # noqa: F401
from .rows import (flash_attn_combine, get_scheduler_metadata, index_first_axis, index_put_first_axis, pad_input,
                   unpad_input)  # noqa: F401
from .serving import flash_attn_with_kvcache  # noqa: F401
from .varlen import (flash_attn_varlen_func, flash_attn_varlen_kvpacked_func,
                     flash_attn_varlen_qkvpacked_func)  # noqa: F401

_WHEN_USED = ("cute", "halves", "rotary", "version_3")


def __dir__():
    return sorted({*globals(), *_WHEN_USED})


def __getattr__(name):
    """Imports rarely used modules on first use."""
    if name not in _WHEN_USED:
        raise AttributeError(f"module 'attune.flash' has no attribute {name!r}")
    import importlib
    return importlib.import_module(f".{name}", __name__)
