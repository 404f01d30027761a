# SPDX-License-Identifier: Apache-2.0
"""FlashAttention 3's qv, a second product of the scores: q k^T + qv v^T, which is absorbed latent attention. Used by _flash_serving.py and _flash_varlen.py."""
from ._kvcache import attention_kvcache
from ._latent import attend_latent


def check_second_product(q, qv, k, v, **factors):
    """Of qv (None: there is none), as q beside k and v [.., 1, head_dim]."""
    if qv is None:
        return
    for name, factor in factors.items():
        if factor is not None:
            raise ValueError(f"{name} is given beside qv; accepted is None: keys and values of latent attention are one tensor")
    if k.shape[-2] != 1 or v.shape[:-1] != k.shape[:-1]:
        raise ValueError(f"qv is given and k has shape {tuple(k.shape)} and v {tuple(v.shape)}; accepted beside qv are k and v of one head, alike but for their last "
                         "dimension")
    if q.dtype.itemsize == 1 or qv.dtype != q.dtype or qv.device != q.device:
        raise ValueError(f"qv is {qv.dtype} on {qv.device} and q {q.dtype} on {q.device}; accepted is q's dtype, of 16 bits or more, on its device")
    wanted = (*q.shape[:-1], v.shape[-1])
    if tuple(qv.shape) != wanted:
        raise ValueError(f"qv has shape {tuple(qv.shape)}; accepted is that of q with the columns of v: {wanted}")


def attend_with(qv, q, k, v, *, return_lse, **choices):
    """attention_kvcache(), with qv in the scores where there is one."""
    if qv is None:
        return attention_kvcache(q, k, v, return_lse=return_lse, **choices)
    o, lse = attend_latent(qv, q, v.squeeze(-2), k.squeeze(-2), **choices)
    return (o, lse) if return_lse else o
