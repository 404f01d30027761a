# SPDX-License-Identifier: Apache-2.0
"""attune in Hugging Face diffusers. diffusers' list of backends is closed, so patch_diffusers() replaces one of them by
attune.

    with attune.patch_diffusers():
        image = pipeline(prompt).images[0]
"""
import contextlib
import sys

_WIDEST, _WIDEST_V = 576, 512  # head dims of attention()
_said = set()  # reasons that were logged


@contextlib.contextmanager
def patch_diffusers(backends=("native",)):
    """Returns a scope in which diffusers' attention backends of these names run attune. "native", PyTorch's SDPA, is
    the models' default.

    With "native" this includes models whose processors call torch.nn.functional.scaled_dot_product_attention themselves
    (SD3, PixArt, CogVideoX, Sana, UNets, VAEs and others). Modules of diffusers see attune in its place, also modules
    that are loaded inside the scope. A log line of level INFO says so (logger "attune"). The scope is the process's:
    other threads see it too.

    Operands are diffusers' [batch, seqlen, num_heads, head_dim], in memory of any order. attn_mask: bool, or floats
    that are added; [batch, seqlen_kv], or a shape that broadcasts to [batch, num_heads, seqlen_q, seqlen_kv]. is_causal
    is aligned top left. Gradients: of query, key and value. Context parallelism raises ValueError.
    Processors' calls stay with PyTorch if they are in float64, on devices other than CPU and CUDA, or of head dims
    above 576 (v: 512). A log line says so once. Raises ImportError without diffusers' attention dispatcher (0.35 or
    later), and ValueError for names that diffusers does not have."""
    import logging  # imported here: it would add milliseconds to `import attune`
    try:
        from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry as registry
    except ImportError as error:
        raise ImportError(
            "patch_diffusers() needs diffusers with models/attention_dispatch.py, 0.35 or later") from error
    names = (backends,) if isinstance(backends, str) else tuple(backends)
    known = [name.value for name in registry.list_backends()]
    for name in names:
        if name not in known:
            raise ValueError(f"backends has {name!r}; must be one of {', '.join(known)}")
    members = [AttentionBackendName(name) for name in names]
    kept = {
        member: (registry._backends[member], registry._constraints[member], registry._supported_arg_names[member])
        for member in members}
    for member in members:
        registry.register(member)(attention_backend)
    logging.getLogger("attune").info("diffusers' attention backend %s runs attune in this scope", ", ".join(names))
    try:
        with _functions_replaced() if "native" in names else contextlib.nullcontext():
            yield
    finally:
        for member, (function, constraints, arguments) in kept.items():
            registry._backends[member], registry._constraints[member] = function, constraints
            registry._supported_arg_names[member] = arguments


class _Imports:
    """A module finder that calls change(module) for each module of diffusers after it is loaded."""

    def __init__(self, change):
        self._change = change

    def find_spec(self, name, path=None, target=None):
        from importlib.machinery import PathFinder
        spec = PathFinder.find_spec(name, path, target) if name.startswith("diffusers.") else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self._change(module)

        spec.loader.exec_module = exec_module
        return spec


@contextlib.contextmanager
def _functions_replaced():
    """Returns a scope in which F (torch.nn.functional) of diffusers' modules is a copy with attune's function in it.
    PyTorch's own module does not change, because all other code uses it."""
    import types
    import torch.nn.functional as functional
    ours, changed = types.ModuleType(functional.__name__), []
    vars(ours).update(vars(functional), scaled_dot_product_attention=scaled_dot_product_attention)

    def change(module):
        if vars(module).get("F") is functional and module.__name__ != "diffusers.models.attention_dispatch":
            module.F = ours
            changed.append(module)

    imports = _Imports(change)
    sys.meta_path.insert(0, imports)
    try:
        for name, module in list(sys.modules.items()):
            if name.startswith("diffusers.") and isinstance(module, types.ModuleType):
                change(module)
        yield
    finally:
        sys.meta_path.remove(imports)
        for module in changed:
            module.F = functional


def _accuracy(query):
    """Returns keywords of attention() for fp32 on a GPU, following PyTorch's setting for matrix products."""
    if not query.is_cuda or str(query.dtype) != "torch.float32":
        return {}
    import torch
    return {"accuracy": "fast" if torch.backends.cuda.matmul.allow_tf32 else "split"}


def _not_served(query, value):
    """Returns the reason why a processor's call stays with PyTorch; None if attune serves it."""
    if str(query.dtype) not in ("torch.float32", "torch.bfloat16", "torch.float16"):
        return f"query is {query.dtype}"
    if query.device.type not in ("cpu", "cuda"):
        return f"query is on {query.device.type}"
    if query.shape[-1] > _WIDEST or value.shape[-1] > _WIDEST_V:
        return f"head dims are {query.shape[-1]} and {value.shape[-1]}"
    return None


def _is_watched():
    """True while a mode intercepts PyTorch's functions, for instance diffusers' skip-layer guidance. torch.device as a
    mode does not count."""
    import torch
    if not torch._C._is_torch_function_mode_enabled() or torch.compiler.is_compiling():
        return False
    from torch.overrides import _get_current_function_mode_stack
    return any(type(mode).__name__ != "DeviceContext" for mode in _get_current_function_mode_stack())


def _say(reason):
    import torch
    if not torch.compiler.is_compiling() and reason not in _said:
        import logging
        _said.add(reason)
        logging.getLogger("attune").info(
            "a call of scaled_dot_product_attention in diffusers runs on PyTorch: %s (said once)", reason)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """Calls attune.sdpa's function, or PyTorch's if attune does not serve the tensors. Processors of diffusers call it
    inside patch_diffusers(). Calls with four axes go to the scope's backend "native"."""
    import torch
    reason = "a mode intercepts PyTorch's functions" if _is_watched() else _not_served(query, value)
    if reason is not None:
        _say(reason)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal,
                                                                scale=scale, enable_gqa=enable_gqa)
    if not query.dim() == key.dim() == value.dim() == 4:
        from .sdpa import attend_checked
        return attend_checked(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, **_accuracy(query))
    if attn_mask is not None and attn_mask.dim() < 4:
        attn_mask = attn_mask.reshape(*(1, ) * (4 - attn_mask.dim()),
                                      *attn_mask.shape)  # the backend reads two axes differently
    from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry as registry
    return registry._backends[AttentionBackendName.NATIVE](*(x.transpose(1, 2) for x in (query, key, value)), attn_mask,
                                                           dropout_p, is_causal, scale, enable_gqa).transpose(1, 2)


def attention_backend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
                      return_lse=False, _parallel_config=None):
    """Implements a backend of diffusers. Returns o [batch, seqlen_q, num_heads, head_dim]; with return_lse (o, lse
    [batch, num_heads, seqlen_q])."""
    from .core.flags import flag
    from .sdpa import attend_checked
    is_causal, enable_gqa, return_lse = flag("is_causal", is_causal), flag("enable_gqa", enable_gqa), flag(
        "return_lse", return_lse)
    if _parallel_config is not None:
        raise ValueError(
            "a parallel config is set, and attune does not serve context parallelism here; load the model without one")
    if attn_mask is not None and tuple(attn_mask.shape) == (query.shape[0], key.shape[1]):
        attn_mask = attn_mask[:, None, None, :]  # as native reads it, even if batch equals seqlen_q
    heads_first = (x.transpose(1, 2) for x in (query, key, value))
    if _is_watched() and not return_lse:
        import torch
        _say("a mode intercepts PyTorch's functions")
        return torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask, dropout_p, is_causal,
                                                                scale=scale, enable_gqa=enable_gqa).transpose(1, 2)
    features = {**_accuracy(query), **({"return_lse": True} if return_lse else {})}
    found = attend_checked(*heads_first, attn_mask, dropout_p, is_causal, scale, enable_gqa, **features)
    return (found[0].transpose(1, 2), found[1]) if return_lse else found.transpose(1, 2)
