# SPDX-License-Identifier: Apache-2.0
"""Implementations that transformers_models.py times beside transformers' own: FlashAttention's packages called
straight, where they are installed under names that transformers does not look for; and `without`, which leaves
attention out."""
import importlib

import transformers
from transformers.masking_utils import AttentionMaskInterface
from transformers.utils import is_flash_attn_2_available

MODULES = {"fa3": "fa3_fwd_interface",
           "fa4": "flash_attn.cute"}  # transformers takes names with "flash" in them for its own


def no_mask(batch_size, q_length=None, kv_length=None, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
            **_):
    """None, where the module's own word on causality says all."""
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError("there is padding, which this peer would need other tensors for")
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
            raise ValueError("the package holds no kernels for windows and sinks")
        o = flash(*(x.transpose(1, 2) for x in (query, key, value)), **given)
        return (o[0] if isinstance(o, tuple) else o), None
    return forward


def without(module, query, key, value, attention_mask, **_):
    batch, heads, rows, _ = query.shape
    return query.new_zeros(batch, rows, heads, value.shape[3]), None


def register():
    """Registers installed peers, and `without`. Returns why others are missing, by name."""
    missing = {} if is_flash_attn_2_available() else {"flash_attention_2": "flash-attn is not installed"}
    transformers.AttentionInterface.register("without", without)
    AttentionMaskInterface.register("without", lambda *_, **__: None)
    for name, module in MODULES.items():
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a package raises when it is loaded
            missing[name] = f"{module}: {error}"
            continue
        transformers.AttentionInterface.register(name, _flash(name))
        AttentionMaskInterface.register(name, no_mask)
    return missing
