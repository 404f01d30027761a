# SPDX-License-Identifier: Apache-2.0
"""attune as an attention implementation of Hugging Face transformers.

    attune.register_transformers()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attune")
    model.set_attn_implementation("attune")   # for a model that is loaded already

Models call attention.py. masks.py turns their masks into attune's features."""
import sys

_OURS = set()  # names registered here


def _interfaces():
    try:
        import transformers
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        found = getattr(sys.modules.get("transformers"), "__version__", None)
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "transformers"
        what = "none is installed" if is_missing else f"found is {found}, " * (
            found is not None) + f"its import fails: {error}"
        raise ImportError(
            f"register_transformers() needs transformers with an AttentionMaskInterface, 4.53 or later; {what}"
        ) from error
    del transformers
    return AttentionInterface, AttentionMaskInterface


def register_transformers(names=("attune",)):
    """Makes attune an `attn_implementation` of transformers, under each of `names`: a name or several.

    Registers the attention function and the mask function. Without a mask function transformers would give a decoder no
    mask. May be called again. Returns None.

    Served: grouped heads without copies, sliding windows, softcap, sinks, position biases, padding on either side,
    packed sequences, chunks, encoders, cross attention, dynamic and static caches, dropout in training. Masks that are
    not recognised run as programs of the score language (attune.mask_mod) or, if they cannot be traced, as tensors.
    Models that ask for output_attentions or head_mask get a ValueError.

    Continuous batching (generate_batch) takes "paged|attune" up to transformers 5.22. Later versions take only names
    with "flash" in them: register_transformers("attune_flash") makes one.
    Raises ImportError without transformers 4.53 or later, and ValueError for names that transformers itself has."""
    attention, masks = _interfaces()
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if not isinstance(name, str) or not name or "|" in name or "/" in name:
            raise ValueError(f"names has {name!r}; must be a text without '|' and '/', such as \"attune\"")
        taken = name == "eager" or name in attention._global_mapping or name in masks._global_mapping
        if taken and name not in _OURS:
            raise ValueError(
                f"names has {name!r}, which transformers itself has; must be another name, such as \"attune\"")
    from .attention import attention_forward
    from .masks import attune_mask
    from . import paged
    takes_prefix = paged.takes_prefix()
    for name in names:
        attention.register(name, attention_forward)
        masks.register(name, attune_mask)
        _OURS.add(name)
        if takes_prefix:
            attention.register(f"paged|{name}", paged.paged_forward)
            masks.register(f"paged|{name}", attune_mask)
    if not takes_prefix:
        paged.serve_flash_names([name for name in names if "flash" in name])
