# SPDX-License-Identifier: Apache-2.0
"""The parameters over which PyTorch's and FlashAttention's own tests of the forward run, and attention in float64.
Written from the grids that test/test_transformers.py of PyTorch and tests/test_flash_attn.py and
tests/cute/test_flash_attn.py of FlashAttention publish. Used by published_grids_test.py, and the reference by others.
"""
import itertools

import torch

_DTYPES = (torch.float16, torch.bfloat16)
_POWERS = (4, 8, 64, 128, 256, 512, 1024, 2048)

# Each grid: axes by name, in the order of the published test.
SDPA_CPU = dict(dtype=(torch.float64, torch.float32, torch.bfloat16, torch.float16), batch=(2, 12),
                seqlen_q=(267, 1030), heads=(1, 3), head_dim=(8, 16), causal=(True, False))
SDPA_CPU_MASK = dict(dtype=(torch.float64, torch.float32, torch.bfloat16, torch.float16), batch=(2, ), seqlen_q=(267, ),
                     seqlen_kv=(514, ), heads=(3, ), head_dim=(8, ),
                     mask_shape=(*itertools.product("q1", "k1"), *itertools.product("b1", "h1", "q1", "k1")),
                     bool_mask=(False, True))
SDPA_FLASH = dict(batch=(1, 8), seqlen_q=(4, 8, 64, 143, 256, 512, 1024, 2048),
                  seqlen_kv=(4, 8, 64, 128, 256, 587, 1024, 2048),
                  head_dim=(8, 16, 21, 32, 64, 72, 96, 128, 160, 192, 203, 256), causal=(True, False),
                  dropout_p=(0.0, 0.22, 0.48), dtype=_DTYPES, scale=(None, "l1"))
SDPA_EFFICIENT = dict(batch=(1, 8), seqlen_q=_POWERS, seqlen_kv=_POWERS, head_dim=(8, 16, 32, 64, 72, 96, 128),
                      causal=(False, True), dropout_p=(0.0, 0.22), dtype=(*_DTYPES, torch.float32), scale=(None, "l1"))
SDPA_EFFICIENT_MASK = dict(batch=(1, 8), seqlen_q=(4, 8, 64, 128, 256, 312, 512, 1024, 2048),
                           seqlen_kv=(4, 8, 64, 65, 128, 256, 408, 512, 1024, 2048),
                           head_dim=(8, 16, 32, 64, 72, 96, 128), dropout_p=(0.0, 0.22),
                           dtype=(*_DTYPES, torch.float32), scale=(None, "l1"), mask_shape=(("q", "k"), ),
                           bool_mask=(False, ))
_FLASH_LENGTHS = ((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (1024, 1024), (1023, 1024),
                  (1024, 1023), (2048, 2048))
FLASH_2 = dict(kvpacked=(True, False), dtype=_DTYPES, kind=("mha", "mqa", "gqa"), alibi=(False, True),
               local=(False, True), causal=(False, True), head_dim=(32, 40, 59, 64, 96, 111, 128, 160, 192, 224, 256),
               lengths=_FLASH_LENGTHS, dropout_p=(0.0, 0.17), softcap=(0.0, 50.0))
FLASH_2_PACKED = dict(dtype=_DTYPES, alibi=(False, True), local=(False, True), causal=(False, True),
                      head_dim=(32, 40, 59, 64, 80, 96, 128, 160, 192, 224, 256),
                      seqlen_q=(97, 128, 200, 384, 768, 1024, 1025, 2048), dropout_p=(0.0, 0.17))
FLASH_4 = dict(
    dtype=(torch.bfloat16, ), kind=("mha", "mqa", "gqa"), sink=(False, True), softcap=(0.0, 15.0), local=(False, True),
    causal=(False, True), head_dim=(64, 128, 192, 256), head_dim_v=(None, 64, 128),
    lengths=((1, 1), (64, 128), (128, 192), (256, 256), (239, 1), (799, 3), (113, 203), (113, 128), (128, 217),
             (113, 211), (108, 256), (256, 512), (384, 256), (640, 128), (512, 256), (1024, 1024), (1023, 1024),
             (1024, 1023), (4096, 4096), (4224, 4224)))


def points(grid):
    """Yields all combinations, as dicts."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values))


def size_of(point):
    """Returns the number of scores per head."""
    rows, keys = point.get("lengths") or (point["seqlen_q"], point.get("seqlen_kv", point["seqlen_q"]))
    return rows * keys


def visible(seqlen_q, seqlen_kv, causal=None, window=None, device="cpu"):
    """Returns a bool mask. causal: top_left, bottom_right or None. window: (left, right), None for open sides.
    """
    diagonal = torch.arange(seqlen_q, device=device)[:, None] + (0 if causal == "top_left" else seqlen_kv - seqlen_q)
    key = torch.arange(seqlen_kv, device=device)[None, :]
    seen = torch.ones(seqlen_q, seqlen_kv, dtype=torch.bool, device=device)
    left, right = window or (None, None)
    if causal is not None:
        seen &= key <= diagonal
    if left is not None and left >= 0:
        seen &= key >= diagonal - left
    if right is not None and right >= 0:
        seen &= key <= diagonal + right
    return seen


def reference(q, k, v, seen=None, bias=None, softcap=None, scale=None, alibi=None, sinks=None, score_mod=None,
              kept=None):
    """Returns (o, lse) in float64, of [batch, seqlen, num_heads, head_dim]. alibi: slopes [batch, num_heads_q]. kept:
    factors by which dropout multiplies weights."""
    rows, keys = q.shape[1], k.shape[1]
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if score_mod is not None:
        index = [
            torch.arange(extent, device=q.device).view([-1 if axis == i else 1 for axis in range(4)])
            for i, extent in enumerate(scores.shape)]
        scores = score_mod(scores, *index)
    if bias is not None:
        scores = scores + bias.double()
    if alibi is not None:
        distance = (torch.arange(rows, device=q.device)[:, None] + keys - rows -
                    torch.arange(keys, device=q.device)[None, :]).abs()
        scores = scores - alibi.double().view(-1, q.shape[1], 1, 1) * distance
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0)[..., None])[..., :keys]
    weights = weights if kept is None else weights * kept
    return (weights @ v).transpose(1, 2), lse
