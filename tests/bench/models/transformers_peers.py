# SPDX-License-Identifier: Apache-2.0
"""Implementations that transformers_models.py times in addition to transformers' own: FlashAttention's packages called
directly, if they are installed under names that transformers does not look for, and `without`, which leaves attention
out."""
import importlib

import transformers
from transformers.masking_utils import AttentionMaskInterface
from transformers.utils import is_flash_attn_2_available

MODULES = {"fa3": "fa3_fwd_interface",
           "fa4": "flash_attn.cute"}  # short names: transformers reserves names with "flash" in them


def no_mask(batch_size, q_length=None, kv_length=None, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
            **_):
    """Returns None if the module's own causality describes the whole mask. Raises for padding."""
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError("the batch is padded; this peer serves batches without padding only")
    return None


def _flash(name):
    def forward(module, query, key, value, attention_mask, scaling=None, sliding_window=None, softcap=None, s_aux=None,
                is_causal=None, **_):
        flash = importlib.import_module(MODULES[name]).flash_attn_func
        given = {
            "softmax_scale": scaling, "causal": getattr(module, "is_causal", True) if is_causal is None else is_causal}
        if softcap is not None:
            given["softcap"] = softcap
        if sliding_window is not None and sliding_window < key.shape[2]:
            given["window_size"] = (sliding_window - 1, 0)
        if s_aux is not None:
            given["learnable_sink"] = s_aux
        if name == "fa3" and (s_aux is not None or "window_size" in given):
            raise ValueError("windows or sinks are given; package fa3-fwd has no kernels for them")
        o = flash(*(x.transpose(1, 2) for x in (query, key, value)), **given)
        return (o[0] if isinstance(o, tuple) else o), None
    return forward


def without(module, query, key, value, attention_mask, **_):
    batch, heads, rows, _ = query.shape
    return query.new_zeros(batch, rows, heads, value.shape[3]), None


def register():
    """Registers installed peers and `without`. Returns {name: reason} for missing peers."""
    missing = {} if is_flash_attn_2_available() else {"flash_attention_2": "flash-attn is not installed"}
    transformers.AttentionInterface.register("without", without)
    AttentionMaskInterface.register("without", lambda *_, **__: None)
    for name, module in MODULES.items():
        try:
            importlib.import_module(module)
        except Exception as error:  # packages raise various types when they are loaded
            missing[name] = f"{module}: {error}"
            continue
        transformers.AttentionInterface.register(name, _flash(name))
        AttentionMaskInterface.register(name, no_mask)
    return missing
