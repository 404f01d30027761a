# SPDX-License-Identifier: Apache-2.0
"""Makes attune the implementation of PyTorch's flash attention operators
(torch.nn.attention.register_flash_attention_impl). Models that call scaled_dot_product_attention then run and train on
attune unchanged.

Active only after activate(), on CUDA. Calls that attune refuses run on PyTorch's own kernels. The forward of one and
the backward of the other may be combined. Used by __init__.py."""
import collections
import contextlib
import logging
import warnings

import torch

from ..ops import attention as _attention, backward as _backward

NAME = "attune"
_log = logging.getLogger("attune")
_FORWARD = "_flash_attention_forward"
_SDPA = "_scaled_dot_product_flash_attention"
_BACKWARD, _SDPA_BACKWARD = "_flash_attention_backward", "_scaled_dot_product_flash_attention_backward"
_reasons = set()  # reasons that were logged
_taken, _left = collections.Counter(), collections.Counter()  # calls by operator, and by (operator, reason)


def _registry():
    found = torch.nn.attention
    if not hasattr(found, "register_flash_attention_impl"):
        raise RuntimeError(
            f"PyTorch {torch.__version__} has no registry of flash attention implementations "
            "(torch.nn.attention.register_flash_attention_impl); use a version that has it, such as 2.11, or call "
            "attune.sdpa.scaled_dot_product_attention in the model instead")
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError(
            f"PyTorch {torch.__version__} has no torch.library.get_kernel, with which attune finds PyTorch's own "
            "kernels for calls that it refuses; use a version that has it, such as 2.11")
    return found


def _original(op):
    """Returns PyTorch's own kernel of an operator, which is called with its tensors' dispatch keys."""
    kernel = torch.library.get_kernel(f"aten::{op}", "CUDA")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    return lambda *args, **kwargs: kernel.call_boxed(keys, *args, **kwargs)


def _refusal(dropout_p, return_debug_mask, unserved):
    """Returns the reason why PyTorch's own kernel takes a call; None if attune takes it."""
    if dropout_p != 0.0:
        return "dropout_p is not 0"
    if return_debug_mask:
        return "return_debug_mask is True"
    for name, given in unserved.items():
        if given is not None:
            return f"{name} is given"
    return None


def _say(op, reason):
    _left[op, reason] += 1
    if (op, reason) not in _reasons:
        _reasons.add((op, reason))
        _log.info("%s runs on PyTorch's own kernel: %s (said once)", op, reason)


def _auxiliary(query):
    """Returns empty values for the random generator's state, its offset, and the dropout mask: there is no dropout."""
    return (torch.zeros((2, ), dtype=torch.uint64,
                        device=query.device), torch.zeros((), dtype=torch.uint64,
                                                          device=query.device), query.new_empty((0, )))


def _out_like(query, head_dim):
    """Returns memory for o [batch, num_heads, seqlen, head_dim] in the order of query's axes, as the operator's fake
    kernel has it."""
    order = sorted(range(4), key=lambda axis: (-query.stride(axis), axis))
    shape = (*query.shape[:3], head_dim)
    return query.new_empty([shape[axis] for axis in order]).permute([order.index(axis) for axis in range(4)])


def sdpa_kernel(original):
    """Returns a kernel for _scaled_dot_product_flash_attention of [batch, num_heads, seqlen, head_dim]. original: the
    kernel that takes the other calls."""

    def run(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
        reason = _refusal(dropout_p, return_debug_mask, {})
        if reason is None:
            out = _out_like(query, value.shape[3])
            try:
                with torch.no_grad():  # autograd is above this
                    _, lse = _attention.attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(
                        1, 2), "causal_bottom_right" if is_causal else None, scale=scale, out=out.transpose(1, 2),
                                                  return_lse=True)
                _taken[_SDPA] += 1
                return (out, lse, None, None, query.shape[2], key.shape[2], *_auxiliary(query))
            except (ValueError, RuntimeError) as error:  # attune.Error is a RuntimeError
                reason = str(error)
        _say(_SDPA, reason)
        return original(query, key, value, dropout_p, is_causal, return_debug_mask, scale=scale)

    return run


def forward_kernel(original):
    """Returns a kernel for _flash_attention_forward of [batch, seqlen, num_heads, head_dim]. Packed sequences go to
    `original`."""

    def run(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *,
            scale=None, window_size_left=None, window_size_right=None, seqused_k=None, alibi_slopes=None, **more):
        reason = _refusal(dropout_p, return_debug_mask,
                          {"cum_seq_q": cum_seq_q, "cum_seq_k": cum_seq_k, "block_table": more.get("block_table")})
        if reason is None and seqused_k is not None and (is_causal or window_size_left is not None or
                                                         window_size_right is not None):
            reason = "seqused_k is given with a causal mask or a window, whose diagonal would end at seqused_k"
        if reason is None and (alibi_slopes is not None or seqused_k is not None) and _is_recorded(query, key, value):
            reason = "an input requires a gradient, and PyTorch's backward does not get alibi_slopes and seqused_k"
        if reason is None:
            try:
                with torch.no_grad():  # autograd is above this
                    o, lse = _attention.attention(query, key, value, "causal_bottom_right" if is_causal else None,
                                                  (window_size_left, window_size_right), scale, return_lse=True,
                                                  alibi_slopes=alibi_slopes, key_lengths=seqused_k)
                _taken[_FORWARD] += 1
                return (o, lse, *_auxiliary(query))
            except (ValueError, RuntimeError) as error:
                reason = str(error)
        _say(_FORWARD, reason)
        return original(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask,
                        scale=scale, window_size_left=window_size_left, window_size_right=window_size_right,
                        seqused_k=seqused_k, alibi_slopes=alibi_slopes, **more)

    return run


def _is_recorded(*tensors):
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _differentiated(op, reason, heads_first, dout, query, key, value, out, lse, is_causal, scale, window=None):
    """Returns (dq, dk, dv) from attune, or None after a line in the log. heads_first: tensors are [batch, num_heads,
    seqlen, head_dim]."""
    turn = (lambda x: x.transpose(1, 2)) if heads_first else (lambda x: x)
    if reason is None:
        try:
            found = [turn(torch.empty_like(turn(x)))
                     for x in (query, key, value)]  # memory as the operator's fake kernel has it
            _backward.attention_backward_checked(*map(turn, (dout, query, key, value, out)), lse, out=tuple(
                map(turn, found)), mask="causal_bottom_right" if is_causal else None, window=window, scale=scale)
            _taken[op] += 1
            return tuple(found)
        except (ValueError, RuntimeError) as error:
            reason = str(error)
    _say(op, reason)
    return None


def sdpa_backward_kernel(original):
    """Returns a kernel for _scaled_dot_product_flash_attention_backward of [batch, num_heads, seqlen, head_dim]."""

    def run(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
            philox_seed, philox_offset, *, scale=None):
        reason = _refusal(dropout_p, False, {"cum_seq_q": cum_seq_q, "cum_seq_k": cum_seq_k})
        found = _differentiated(_SDPA_BACKWARD, reason, True, grad_out, query, key, value, out, logsumexp, is_causal,
                                scale)
        return found or original(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
                                 dropout_p, is_causal, philox_seed, philox_offset, scale=scale)

    return run


def backward_kernel(original):
    """Returns a kernel for _flash_attention_backward of [batch, seqlen, num_heads, head_dim]. Packed sequences go to
    `original`."""

    def run(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
            rng_state, unused, *, scale=None, window_size_left=None, window_size_right=None, **more):
        reason = _refusal(dropout_p, False, {"cum_seq_q": cum_seq_q, "cum_seq_k": cum_seq_k, **more})
        found = _differentiated(_BACKWARD, reason, False, grad_out, query, key, value, out, logsumexp, is_causal, scale,
                                (window_size_left, window_size_right))
        return found or original(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
                                 dropout_p, is_causal, rng_state, unused, scale=scale,
                                 window_size_left=window_size_left, window_size_right=window_size_right, **more)

    return run


class _Handle:
    """The object that PyTorch's registry keeps while attune is active."""

    def __init__(self):
        makers = {
            _SDPA: sdpa_kernel, _FORWARD: forward_kernel, _SDPA_BACKWARD: sdpa_backward_kernel,
            _BACKWARD: backward_kernel}
        kernels = {op: make(_original(op)) for op, make in makers.items()}  # before they are replaced
        self.library = torch.library.Library("aten", "IMPL", "CUDA")
        for op, kernel in kernels.items():
            self.library.impl(op, kernel, "CUDA")

    def remove(self):
        self.library._destroy()
        _forget()


def _forget():
    for each in (_reasons, _taken, _left):
        each.clear()


def register():
    """Lists attune in PyTorch's registry, if it has one; attune stays inactive."""
    with contextlib.suppress(RuntimeError):
        _registry().register_flash_attention_impl(NAME, register_fn=_Handle)


def activate():
    """Makes PyTorch's flash attention on CUDA run on attune from now on, with its backward.

    scaled_dot_product_attention uses it where PyTorch chooses flash attention (16 bits, no attn_mask), and so do models
    and libraries that call it. Calls that attune refuses run on PyTorch's own kernels, with one line per reason in the
    log "attune".
    In causal calls the last query is at the last key, as in FlashAttention; scaled_dot_product_attention passes causal
    calls only for equal lengths. lse is fp32 [batch, num_heads_q, seqlen_q]; states of random generators are zero.
    Returns None. Raises RuntimeError if PyTorch has no such registry; warns if there is no CUDA device. active() and
    calls() report, restore() ends it."""
    registry = _registry()
    if not torch.cuda.is_available():
        warnings.warn(
            "attune.torch.activate() has no effect here: PyTorch finds no CUDA device, and attune replaces PyTorch's "
            "flash attention only on CUDA. Call attune.sdpa.scaled_dot_product_attention in the model instead",
            RuntimeWarning, stacklevel=2)
    registry.register_flash_attention_impl(NAME, register_fn=_Handle)
    registry.activate_flash_attention_impl(NAME)


def active():
    """True between activate() and restore(), unless another implementation was activated."""
    return getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)() == NAME


def calls():
    """Returns how many calls of PyTorch's flash attention attune took since activate(), and how many it left to
    PyTorch's own kernels.

    The result is {"taken": {operator: calls}, "left": {operator: {reason: calls}}}. restore() resets the counts."""
    left = {}
    for (op, reason), count in list(_left.items()):
        left.setdefault(op, {})[reason] = count
    return {"taken": dict(_taken), "left": left}


def restore():
    """Ends activate(): PyTorch's own kernels run again. Does nothing if another implementation is active."""
    registry = _registry()
    if registry.current_flash_attention_impl() == NAME:
        registry.restore_flash_attention_impl()
