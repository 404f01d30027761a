# SPDX-License-Identifier: Apache-2.0
"""Checks of single arguments, by the name that the caller knows: flags, numbers, words, types, lists of integers,
masks, tensors to read and buffers to write. Each returns the value in the form that the other files here use, or
raises. Used by all of them."""
import math

from ..core import tensors
from ..core.flags import flag
from ..core.problem import real, whole

_INSTEAD = {
    "jit_args": "attune.attention_kvcache() takes score_mod, mask_mod and sinks",
    "jit_kwargs": "they belong to jit_args; see attune.attention_kvcache(score_mod=, mask_mod=, sinks=)",
    "kv_cache_sf": "attune reads caches of 4 bits over pages, in the decode and prefill wrappers",
    "skip_softmax_threshold_scale_factor": "attune skips no visible key",
    "profiler_buffer": "attune writes no profile",
    "kv_len": "plan() takes the keys of each request as kv_len_arr",
    "page_table": "plan() takes the pages of each request as kv_indptr and kv_indices",
    "ckv_scale_arr": "attune takes one ckv_scale for the whole cache",
    "o_scale": "out has q's type",
}
_ITEMS = "attune has no masks of scored items; use custom_mask"


def nothing(**given):
    """Raises if an argument is given that attune does not serve."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is given; must be None" + (f": {_INSTEAD[name]}" if name in _INSTEAD else ""))


def no_items(token_pos_in_items_len, **pointers):
    """Raises if arguments for the scored items of a prompt are given."""
    for name, value in pointers.items():
        if value is not None:
            raise ValueError(f"{name} is given; must be None: {_ITEMS}")
    if whole("token_pos_in_items_len", token_pos_in_items_len) != 0:
        raise ValueError(f"token_pos_in_items_len is {token_pos_in_items_len}; must be 0: {_ITEMS}")


def hints(*, flags=(), words=()):
    """Checks pairs (name, value) of arguments that change no result. A flag may be None."""
    for name, value in flags:
        if value is not None:
            flag(name, value)
    for name, value in words:
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r}; must be a name")


def no_profile(use_profiler):
    if flag("use_profiler", use_profiler):
        raise ValueError("use_profiler is True; must be False: attune writes no profile")


def fp32():
    import torch
    return torch.float32


def number(name, value, above=None, least=None):
    """Returns a finite float. A tensor of one element is also a number."""
    made = real(name, value.reshape(()) if tuple(getattr(value, "shape", ())) == (1,) else value)
    if not math.isfinite(made) or (above is not None and made <= above) or (least is not None and made < least):
        bound = f" above {above}" if above is not None else f" of at least {least}" if least is not None else ""
        raise ValueError(f"{name} is {made}; must be a finite number{bound}")
    return made


def soft_cap(value):
    """Returns the softcap of attention_kvcache(). 0 means no softcap."""
    return None if value is None else number("logits_soft_cap", value, least=0) or None


def scale_of(name, value):
    """Returns a factor of scores, above 0, or None."""
    return None if value is None else number(name, value, above=0)


def rotary(rope_scale, rope_theta):
    """Checks arguments that only matter for rotary positions, which attention refuses."""
    for name, value in (("rope_scale", rope_scale), ("rope_theta", rope_theta)):
        scale_of(name, value)


def count(name, value, least=1, most=None):
    """Returns a whole number within bounds."""
    made = whole(name, value)
    if made < least or (most is not None and made > most):
        raise ValueError(f"{name} is {made}; must be {f'at least {least}' if most is None else f'{least} to {most}'}")
    return made


def window(name, value):
    """Returns the number of keys that a row sees before its own place, -1 for all."""
    return -1 if value is None else count(name, value, -1)


def splits(fixed_split_size, disable_split_kv):
    """True if one of these arguments requires results that do not depend on the batch."""
    fixed = fixed_split_size is not None and count("fixed_split_size", fixed_split_size, -1) > 0
    return flag("disable_split_kv", disable_split_kv) or fixed


def heads(num_qo_heads, num_kv_heads):
    """Checks both numbers of heads."""
    if count("num_qo_heads", num_qo_heads) % count("num_kv_heads", num_kv_heads):
        raise ValueError(f"num_qo_heads is {num_qo_heads}; must be a multiple of num_kv_heads, {num_kv_heads}")


def dtype_of(name, value):
    """Returns PyTorch's dtype for a dtype or its name, or None."""
    import torch
    made = getattr(torch, value, None) if isinstance(value, str) else value
    if made is not None and not isinstance(made, torch.dtype) or made is None and value is not None:
        raise ValueError(f"{name} is {value!r}; must be a dtype of PyTorch or its name")
    return made


def check_dtype(name, tensor, said, planned):
    """Raises if a tensor's dtype is not `planned`, the value of plan()'s argument named `said`. None allows all."""
    if planned is not None and tensor.dtype != planned:
        raise ValueError(f"{said} is {planned} and {name} is {tensor.dtype}; must be the same")


def integers(name, values, wanted="[batch + 1]"):
    """Returns a list of integers on the host, int64 of one dimension."""
    import torch
    try:
        made = torch.as_tensor(values, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} is {values!r}; must be a tensor of integers, {wanted}") from error
    if made.numel() == 0 and not tensors.is_torch(values):
        made = made.long()  # an empty list has no dtype
    check_integers(name, made, wanted)
    return made.long()


def check_integers(name, tensor, wanted, rank=1):
    """Raises unless `tensor` is a tensor of integers of that rank. wanted: its dimensions in words."""
    if not tensors.is_torch(tensor):
        raise ValueError(f"{name} is {tensors.kind_text(tensor)}; must be a tensor of integers, {wanted}")
    if tensor.is_floating_point() or tensor.is_complex() or str(tensor.dtype) == "torch.bool" or tensor.dim() != rank:
        raise ValueError(
            f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}; must be a tensor of integers, {wanted}")


def bools(name, value, device=None):
    """Returns a mask as bools, with its shape. Raises for floats: a mask of 0 and -inf, which is meant to be added to
    scores, would have the opposite meaning."""
    import torch
    try:
        made = torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} is {value!r}; must be a tensor of bools") from error
    if made.dtype == torch.bool:
        return made
    if made.is_floating_point() or made.is_complex():
        raise ValueError(
            f"{name} is {made.dtype}; must be bool, True where a key is seen (a mask of floats is a bias, see "
            f"attune.attention(bias=))")
    if not bool(((made == 0) | (made == 1)).all()):
        raise ValueError(f"{name} is {made.dtype} with elements other than 0 and 1; must be bool")
    return made.bool()


def bytes_of(name, value, device=None):
    """Returns a mask in bits, uint8 of one dimension."""
    import torch
    if not tensors.is_torch(value) or value.dtype != torch.uint8 or value.dim() != 1:
        found = f"{value.dtype} of shape {tuple(value.shape)}" if tensors.is_torch(value) else tensors.kind_text(value)
        raise ValueError(f"{name} is {found}; must be uint8 of one dimension, a bit per row and key")
    return value if device is None else value.to(device)


def tensor(name, value, wanted):
    """Returns the tensor. Raises unless it has as many dimensions as `wanted` names."""
    if not tensors.is_torch(value):
        raise TypeError(f"{name} is {tensors.kind_text(value)}; must be a PyTorch tensor, {wanted}")
    if value.dim() != wanted.count(",") + 1:
        raise ValueError(f"{name} has shape {tuple(value.shape)}; must be {wanted}")
    return value


def floats(name, value, wanted, like=None, name_of_like="q"):
    """Returns the tensor. Raises unless it holds floats, with the device and dtype of `like` if that is given."""
    if not tensor(name, value, wanted).is_floating_point():
        raise ValueError(f"{name} is {value.dtype}; must be floating point")
    if like is not None and (value.dtype, value.device) != (like.dtype, like.device):
        raise ValueError(
            f"{name} is {value.dtype} on {value.device} and {name_of_like} {like.dtype} on {like.device}; must have "
            f"the same dtype and device")
    return value


def floats_or_codes(name, value, wanted):
    """Returns the tensor. Raises unless it holds floats or 8-bit codes."""
    refuse_other_codes(name, tensor(name, value, wanted))
    return value


def refuse_other_codes(name, value):
    if not (value.is_floating_point() or value.dtype.itemsize == 1) or str(value.dtype) == "torch.bool":
        raise ValueError(f"{name} is {value.dtype}; must be floating point, int8 or uint8")


def _traced(*given):
    """Does nothing. A check of the sizes inside a graph would make a new graph for each plan."""


def refuse_short(planned, q, k, name_of_caches):
    """Raises if tensors end before the rows and pages (or keys) that a plan's lists name. Graphs of torch.compile skip
    this check."""
    rows, places = planned._least
    if q.shape[0] < rows or k.shape[0] < places:
        what = "pages" if k.dim() == 4 else "keys"
        raise ValueError(
            f"q has {q.shape[0]} rows and {name_of_caches} {k.shape[0]} {what}; must be at least {rows} and {places}, "
            f"because the lists given to plan() refer to that many")


refuse_short._torchdynamo_inline = _traced


def buffer(name, value, shape, dtype, device):
    """Returns a tensor that the call writes, or None. dtype: None for any."""
    if value is None:
        return None
    if not tensors.is_torch(value):
        raise TypeError(f"{name} is {tensors.kind_text(value)}; must be a PyTorch tensor, which the call writes")
    if tuple(value.shape) != tuple(shape) or value.dtype != (dtype or value.dtype) or value.device != device:
        raise ValueError(
            f"{name} is {value.dtype} of shape {tuple(value.shape)} on {value.device}; must be {dtype} of shape "
            f"{tuple(shape)} on {device}")
    if any(step == 0 and extent > 1 for step, extent in zip(value.stride(), value.shape)):
        raise ValueError(f"{name} has strides {tuple(value.stride())}; each element must have its own place in memory")
    return value


def list_buffer(name, value):
    """Returns a buffer that plan() writes a list, or a mask of bits, into."""
    wanted = ("uint8",) if name == "custom_mask_buf" else ("int32", "int64")
    if not tensors.is_torch(value) or value.dim() != 1 or str(value.dtype).removeprefix("torch.") not in wanted:
        found = f"{value.dtype} of shape {tuple(value.shape)}" if tensors.is_torch(value) else tensors.kind_text(value)
        raise ValueError(f"{name} is {found}; must be {' or '.join(wanted)} of one dimension, which plan() writes")
    return buffer(name, value, value.shape, None, value.device)


def device(value):
    """Returns PyTorch's device for a device or its name. None: a GPU if there is one, otherwise the CPU."""
    import torch
    try:
        return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if value is None else value)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device is {value!r}; must be a device of PyTorch or its name") from error


def workspace(name, value):
    """Returns the caller's workspace; attune only uses its device."""
    if value is not None and not tensors.is_torch(value):
        raise TypeError(f"{name} is {tensors.kind_text(value)}; must be a PyTorch tensor or None")
    return value
