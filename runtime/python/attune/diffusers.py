# SPDX-License-Identifier: Apache-2.0
"""attune in Hugging Face diffusers, whose backends are a closed list: inside patch_diffusers() one of its names is attune.

    with attune.patch_diffusers():
        image = pipeline(prompt).images[0]
"""
import contextlib


@contextlib.contextmanager
def patch_diffusers(backends=("native",)):
    """A scope in which diffusers' attention backends of these names run attune; "native", PyTorch's SDPA, is the one that models take unless
    told otherwise. A log line of level INFO (logger "attune") says so. The scope is the process's: other threads see it too.

    Operands are diffusers' [batch, seqlen, num_heads, head_dim]. attn_mask: bool, or a float that is added, [batch, seqlen_kv] or [batch,
    num_heads, seqlen_q, seqlen_kv]; is_causal is aligned top left. Gradients of query, key and value. Refused with a sentence: context parallelism.
    Raises ImportError without diffusers' attention dispatcher (0.35 and later), ValueError for names that it does not have."""
    import logging  # milliseconds that `import attune` need not take
    try:
        from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry as registry
    except ImportError as error:
        raise ImportError("patch_diffusers() needs diffusers with models/attention_dispatch.py, 0.35 or later") from error
    names = (backends,) if isinstance(backends, str) else tuple(backends)
    known = [name.value for name in registry.list_backends()]
    for name in names:
        if name not in known:
            raise ValueError(f"backends has {name!r}; accepted are {', '.join(known)}")
    members = [AttentionBackendName(name) for name in names]
    kept = {member: (registry._backends[member], registry._constraints[member], registry._supported_arg_names[member]) for member in members}
    for member in members:
        registry.register(member)(attention_backend)
    logging.getLogger("attune").info("diffusers' attention backend %s runs attune in this scope", ", ".join(names))
    try:
        yield
    finally:
        for member, (function, constraints, arguments) in kept.items():
            registry._backends[member], registry._constraints[member] = function, constraints
            registry._supported_arg_names[member] = arguments


def attention_backend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, return_lse=False,
                      _parallel_config=None):
    """As diffusers calls a backend. Returns o [batch, seqlen_q, num_heads, head_dim], with return_lse (o, lse [batch, num_heads, seqlen_q])."""
    from . import attention
    from ._flags import flag
    is_causal, enable_gqa, return_lse = flag("is_causal", is_causal), flag("enable_gqa", enable_gqa), flag("return_lse", return_lse)
    if _parallel_config is not None:
        raise ValueError("a parallel config is set, and attune does not serve context parallelism here; accepted are models without one")
    if query.shape[2] != key.shape[2] and not enable_gqa:
        raise ValueError(f"query has {query.shape[2]} heads and key has {key.shape[2]}; accepted are as many, or enable_gqa=True")
    keywords = {"dropout_p": dropout_p} if dropout_p else {}
    if attn_mask is not None:
        if is_causal:
            raise ValueError("attn_mask and is_causal are both given; accepted is one of them")
        if attn_mask.dim() not in (2, 4):
            raise ValueError(f"attn_mask has shape {tuple(attn_mask.shape)}; accepted are [batch, seqlen_kv] and [batch, num_heads, seqlen_q, seqlen_kv]")
        mask = attn_mask if attn_mask.dim() == 4 else attn_mask[:, None, None, :]
        keywords["bias" if mask.is_floating_point() else "mask_tensor"] = mask
    if query.is_cuda and str(query.dtype) == "torch.float32":
        import torch
        keywords["accuracy"] = "fast" if torch.backends.cuda.matmul.allow_tf32 else "split"
    return attention(query, key, value, mask="causal_top_left" if is_causal else None, scale=scale, return_lse=return_lse, **keywords)
