# SPDX-License-Identifier: Apache-2.0
"""FlashAttention 3's qv, a second product of the scores: q k^T + qv v^T. With one head this is absorbed latent
attention. Used by serving.py and varlen.py."""
from ..ops.kvcache import attention_kvcache
from ..ops.latent import attend_latent


def check_second_product(q, qv, k, v, **factors):
    """Checks qv (None: none is given) against q, and against k and v [.., num_heads_kv, head_dim]."""
    if qv is None:
        return
    for name, factor in factors.items():
        if factor is not None:
            raise ValueError(
                f"{name} is given with qv; must be None: keys and values of latent attention are one tensor")
    if v.shape[:-1] != k.shape[:-1]:
        raise ValueError(
            f"qv is given and k has shape {tuple(k.shape)} and v {tuple(v.shape)}; both must be equal but for their "
            f"last dimension")
    if q.dtype.itemsize == 1 or qv.dtype != q.dtype or qv.device != q.device:
        raise ValueError(
            f"qv is {qv.dtype} on {qv.device} and q {q.dtype} on {q.device}; both must be on one device, of one dtype, "
            f"and of 16 or 32 bits")
    wanted = (*q.shape[:-1], v.shape[-1])
    if tuple(qv.shape) != wanted:
        raise ValueError(f"qv has shape {tuple(qv.shape)}; must be {wanted}, q's shape with v's columns")


def attend_with(qv, q, k, v, *, return_lse, **choices):
    """Calls attention_kvcache(), with qv in the scores if it is given."""
    if qv is None:
        return attention_kvcache(q, k, v, return_lse=return_lse, **choices)
    o, lse = attend_latent(qv, q, *((v.squeeze(-2), k.squeeze(-2)) if k.shape[-2] == 1 else (v, k)), **choices)
    return (o, lse) if return_lse else o
