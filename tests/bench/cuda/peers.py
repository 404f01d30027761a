# SPDX-License-Identifier: Apache-2.0
"""Peers on the same tensors [batch, seqlen, heads, head_dim]: PyTorch SDPA (cuDNN, flash), FlashAttention-3 (package
fa3-fwd), FlashAttention-4 (flash-attn-4), FlexAttention, standard attention. Used by attention.py and fp8.py; decode.py
has its own builders and uses versions() and missing().

Each builder returns a callable, or None if the peer does not serve the case. missing() lists peers that cannot be
imported; they appear in no table. fetch_peers.sh fetches the packages for a machine without a registry.
"""
import importlib
import importlib.metadata
import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right


def _sdpa(backend, case, q, k, v):
    if case.window_left >= 0:
        return None
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
    options = {"enable_gqa": True} if case.heads_q != case.heads_kv else {}
    if case.causal and case.seqlen_q != case.seqlen_kv:
        options["attn_mask"] = causal_lower_right(case.seqlen_q, case.seqlen_kv)
    elif case.causal:
        options["is_causal"] = True

    def run():
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, **options)

    return run


def cudnn(case, q, k, v):
    return _sdpa(SDPBackend.CUDNN_ATTENTION, case, q, k, v)


def flash2(case, q, k, v):
    return _sdpa(SDPBackend.FLASH_ATTENTION, case, q, k, v)


def flash3(case, q, k, v):
    """Builds FlashAttention-3, also for e4m3 operands. The package has no kernels for windows or fp16."""
    from fa3_fwd_interface import flash_attn_func
    if case.window_left >= 0 or q.dtype == torch.float16:
        return None
    splits = 1 if case.seqlen_q == case.seqlen_kv else 0  # 0: the package's heuristic, for few query rows
    return lambda: flash_attn_func(q, k, v, causal=case.causal, num_splits=splits)


def flash4(case, q, k, v):
    from flash_attn.cute import flash_attn_func
    window = (case.window_left, case.window_right) if case.window_left >= 0 else (None, None)
    return lambda: flash_attn_func(q, k, v, causal=case.causal and case.window_left < 0, window_size=window)


def flex(case, q, k, v):
    """Builds FlexAttention, max-autotune. Resets dynamo first: past its recompile limit it silently runs eagerly."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    torch._dynamo.reset()
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
    offset, left = case.seqlen_kv - case.seqlen_q, case.window_left

    def visible(b, h, row, column):
        inside = row + offset + (0 if case.causal else case.window_right) >= column
        return inside & (row + offset - column <= left) if left >= 0 else inside

    masked = case.causal or left >= 0
    mask = create_block_mask(visible, None, None, case.seqlen_q, case.seqlen_kv, device="cuda") if masked else None
    compiled = torch.compile(flex_attention, mode="max-autotune-no-cudagraphs", dynamic=False)
    return lambda: compiled(qt, kt, vt, block_mask=mask, enable_gqa=case.heads_q != case.heads_kv)


def standard(case, q, k, v):
    """Builds matmul, softmax, matmul as separate kernels; None if the scores would not fit in memory."""
    if case.heads_q != case.heads_kv or case.batch * case.heads_q * case.seqlen_q * case.seqlen_kv > 8 * 2**30:
        return None
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
    scale = 1.0 / math.sqrt(case.head_dim)
    hidden = None
    if case.causal:
        rows = torch.arange(case.seqlen_q, device="cuda")[:, None] + (case.seqlen_kv - case.seqlen_q)
        hidden = torch.arange(case.seqlen_kv, device="cuda")[None, :] > rows

    def run():
        scores = torch.matmul(qt, kt.transpose(-1, -2)) * scale
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.matmul(torch.softmax(scores, -1), vt)

    return run


PEERS = {"cudnn": cudnn, "flash2": flash2, "flash3": flash3, "flash4": flash4, "flex": flex, "standard": standard}
DEFAULT = ("cudnn", "flash2", "flash3", "flash4", "flex")
PACKAGES = {
    "flash3": "fa3-fwd", "flash4": "flash-attn-4", "flashinfer_fa2": "flashinfer-python",
    "flashinfer_fa3": "flashinfer-python"}  # the other peers are PyTorch's
MODULES = {
    "flash3": "fa3_fwd_interface", "flash4": "flash_attn.cute", "flashinfer_fa2": "flashinfer",
    "flashinfer_fa3": "flashinfer"}
ROWS_BEFORE_HEADS = (
    "flash3", "flash4")  # results are [batch, seqlen, heads, head_dim]; other peers: [batch, heads, seqlen, head_dim]


def as_bshd(name, result):
    out = result[0] if isinstance(result, tuple) else result
    return out if name in ROWS_BEFORE_HEADS else out.transpose(1, 2)


def distance(mine, theirs):
    """Returns the norm of the difference over the norm of the peer's result."""
    return ((mine.float() - theirs.float()).norm() / theirs.float().norm()).item()


def versions(names):
    """Returns the package and version of each peer."""
    packages = {name: PACKAGES.get(name, "torch") for name in names}
    return {name: f"{package} {importlib.metadata.version(package)}" for name, package in packages.items()}


def missing(names):
    """Returns {peer: reason} for requested peers that cannot be imported."""
    found = {}
    for name in names:
        try:
            importlib.import_module(MODULES.get(name, "torch"))
        except Exception as error:  # packages raise various types when they are loaded
            found[name] = f"{PACKAGES[name]}: {error}"
    return found
