# SPDX-License-Identifier: Apache-2.0
"""Times the functions of attune.register_transformers() on the host, in microseconds per call. Used by
transformers_models.py."""
import statistics
import time

import torch

import attune

CALLS, ROUNDS = 1000, 9


def _us(call, calls=CALLS, wait=lambda: None):
    costs = []
    for _ in range(ROUNDS):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        costs.append((time.perf_counter() - start) * 1e6 / calls)
        wait()
    return statistics.median(costs)


def costs(device="cuda"):
    """Returns times by name. adapter: the attention function without attune.attention(). attention: attune.attention()
    alone on the same operands. with_adapter: both together. mask, padded_mask: the mask function, which runs once per
    forward pass. sdpa_mask, sdpa_padded_mask: transformers' own mask function."""
    import attune.transformers.attention as ours
    from attune.transformers.masks import attune_mask
    from transformers.masking_utils import sdpa_mask
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k = (torch.randn(1, heads, 16, 64, device=device, dtype=dtype) for heads in (4, 2))
    module, wait = torch.nn.Module(), torch.cuda.synchronize if device == "cuda" else lambda: None
    sizes = dict(batch_size=1, q_length=16, kv_length=16, device=device)
    rule = attune_mask(**sizes)
    padding = torch.ones(1, 16, dtype=torch.bool, device=device)
    padding[:, :3] = False
    call = lambda: ours.attention_forward(module, q, k, k, rule, dropout=0.0, scaling=0.125)
    rows = [x.transpose(1, 2) for x in (q, k, k)]
    with torch.inference_mode():
        call()
        found = {
            "attention": _us(lambda: attune.attention(*rows, scale=0.125, mask="causal_bottom_right"), 100, wait),
            "with_adapter": _us(call, 100, wait)}
        real, ours.attend_from_heads_first = ours.attend_from_heads_first, lambda q, *_, **__: q
        try:
            found["adapter"] = _us(call)
        finally:
            ours.attend_from_heads_first = real
        for name, function in (("", attune_mask), ("sdpa_", sdpa_mask)):
            found[f"{name}mask"] = _us(lambda: function(**sizes), 20, wait)
            found[f"{name}padded_mask"] = _us(lambda: function(**sizes, attention_mask=padding), 20, wait)
    return {"unit": "us", **found}
