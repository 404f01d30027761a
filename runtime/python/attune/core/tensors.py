# SPDX-License-Identifier: Apache-2.0
"""Reads the properties of a PyTorch tensor or NumPy array that the C interface needs (dtype, device, strides, address),
and makes new tensors. Used by all other files of the package. Does not import PyTorch or NumPy."""
import sys

# attune's names of dtypes of PyTorch, NumPy and ml_dtypes.
_DTYPE_NAMES = {
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float4_e2m1fn_x2": "e2m1", "float32": "fp32", "float16": "fp16",
    "bfloat16": "bf16"}
DTYPES = ("fp32", "bf16", "fp16", "e4m3", "e5m2", "int8", "int4", "e2m1")  # in attune_dtype's order
FP8_NAMES = ("e4m3", "e5m2")
NIBBLE_NAMES = ("int4", "e2m1")  # two codes in a byte
NARROW_NAMES = (*FP8_NAMES, "int8", *NIBBLE_NAMES)  # int8 and those after it: only caches have them
ROWS, TRANSPOSED = 0, 1  # attune_v_layout
DIMENSIONS = {ROWS: "[batch, seqlen, num_heads, head_dim]", TRANSPOSED: "[batch, num_heads, head_dim, seqlen]"}


def is_torch(tensor):
    torch = sys.modules.get("torch")  # only a program that imported PyTorch can have its tensors
    return torch is not None and isinstance(tensor, torch.Tensor)


def is_numpy(tensor):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(tensor, numpy.ndarray)


def kind_text(tensor):
    return "a PyTorch tensor" if is_torch(tensor) else "a NumPy array" if is_numpy(
        tensor) else f"of type {type(tensor).__name__}"


def refuse_kind(name, tensor):
    raise TypeError(f"{name} is {kind_text(tensor)}; must be a PyTorch tensor or a NumPy array")


def check_dense(name, tensor):
    """Raises for PyTorch's nested and sparse tensors: attune would read elements that they do not have."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return
    if tensor.is_nested:
        raise ValueError(
            f"{name} is a nested tensor; must be a dense one (for a jagged tensor give .values() and .offsets() to "
            f"attune.flash.flash_attn_varlen_func())")
    if tensor.layout is not torch.strided:
        raise ValueError(f"{name} has layout {tensor.layout}; must be a dense tensor")


def signature(name, tensor):
    """Returns all properties that the checks of a tensor depend on, without its address and gradient. Tensors with
    equal signatures pass the same checks."""
    if is_torch(tensor):
        if tensor.is_nested:
            check_dense(name, tensor)
        try:
            return type(tensor), tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.is_neg()
        except (RuntimeError, NotImplementedError) as error:  # sparse and nested tensors have no strides
            raise ValueError(f"{name} is not dense ({str(error).splitlines()[0]}); must be a dense tensor") from error
    if is_numpy(tensor):
        return type(tensor), tensor.dtype, tensor.shape, tensor.strides
    return refuse_kind(name, tensor)


def refuse_without_memory(name, tensor):
    native = getattr(getattr(sys.modules.get("torch"), "_C", None), "_functorch", None)
    if native is not None and is_torch(tensor) and native.is_functorch_wrapped_tensor(tensor):
        raise RuntimeError(
            f"{name} is inside a torch.func transform (vmap, grad, jvp), for which attune has no rule; give plain "
            "tensors: fold a mapped axis into batch, and take gradients with torch.autograd")
    raise ValueError(f"{name} is a {type(tensor).__name__} without memory; must hold its elements")


def _refuse_other_extents(name, tensor):
    """Raises for a tensor of a subclass that shows other extents than its memory has: kernels would read beyond it."""
    if is_torch(tensor):
        torch = sys.modules["torch"]
        if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
            return
        with torch._C.DisableTorchFunctionSubclass():
            held = tuple(torch._C.TensorBase.shape.__get__(tensor)), torch._C.TensorBase.stride(tensor)
        shown = tuple(tensor.shape), tuple(tensor.stride())
    else:
        array = sys.modules["numpy"].ndarray
        if type(tensor) is array:
            return
        held = array.shape.__get__(tensor), array.strides.__get__(tensor)
        shown = tuple(tensor.shape), tuple(tensor.strides)
    if held != shown:
        raise ValueError(
            f"{name} is a {type(tensor).__name__} that shows shape {shown[0]} and strides {shown[1]}; must be those of "
            f"its memory, {held[0]} and {held[1]}")


def check_plain(name, tensor):
    """Raises unless the tensor's memory holds exactly the elements that it shows. Checks what signature() does not."""
    if is_torch(tensor):
        if type(tensor).__name__ == "FakeTensor":  # asking for its address only warns
            refuse_without_memory(name, tensor)
        check_dense(name, tensor)
        if tensor.is_neg():
            raise ValueError(f"{name} is a view of its negative; must be a plain tensor (call .resolve_neg() on it)")
        _refuse_other_extents(name, tensor)
        return
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(tensor, masked.MaskedArray):
        raise ValueError(
            f"{name} is a masked array, whose mask would be lost; must be a plain array (call .filled() on it)")
    _refuse_other_extents(name, tensor)


def refuse_meaning(name, tensor):
    """Raises for a class whose functions define its meaning, such as PyTorch's CausalBias: its memory may hold
    anything."""
    torch = sys.modules.get("torch")
    own = getattr(getattr(type(tensor), "__torch_function__", None), "__func__",
                  None)  # None also if it is disabled
    if is_torch(tensor) and own is not None and own is not torch.Tensor.__torch_function__.__func__:
        raise ValueError(
            f"{name} is a {type(tensor).__name__}, a class with its own __torch_function__, so its memory may not hold "
            "its values; must be a plain tensor (for a CausalBias give mask=\"causal_top_left\" or "
            "\"causal_bottom_right\")")


def check_rank(name, tensor, wanted):
    """Raises unless the tensor has the dimensions `wanted`, in words such as "[batch, num_heads]"."""
    rank, accepted = len(tensor.shape), wanted.count(",") + 1
    if rank != accepted:
        raise ValueError(f"{name} has {rank} dimensions, shape {tuple(tensor.shape)}; must be {accepted}: {wanted}")


def dtype_text(dtype):
    """Returns attune's name of a dtype. The dtype is a name, PyTorch's or NumPy's dtype, or a scalar type such as
    numpy.float16."""
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    name = name.removeprefix("torch.")
    return _DTYPE_NAMES.get(name, name)


def dtype_name(tensor, given=None, name="q", argument="dtype"):
    """Returns attune's name of a tensor's dtype. given: for uint8 arrays, the 8-bit type that they hold. argument: the
    caller's name of `given`, for messages."""
    own = dtype_text(tensor.dtype)
    if own == "uint8":
        if given is None:
            raise ValueError(f"{name} is uint8 and its type is not named; give dtype=\"e4m3\" or \"e5m2\"")
        return dtype_text(given)
    if given is not None and dtype_text(given) != own:
        raise ValueError(
            f"{name} is {own} and {argument} is {dtype_text(given)}; {argument} names the type of uint8 arrays only")
    return own


def check_like(like):
    """Checks an argument that tells the library and the device of a result. None: NumPy."""
    if like is not None and not (is_torch(like) or is_numpy(like)):
        refuse_kind("like", like)


def item_bytes(tensor):
    return tensor.element_size() if is_torch(tensor) else tensor.itemsize


def element_strides(name, tensor):
    if is_torch(tensor):
        return tensor.stride()
    if any(stride % tensor.itemsize for stride in tensor.strides):
        raise ValueError(
            f"{name} has strides of {tensor.strides} bytes; must be a multiple of its {tensor.itemsize}-byte elements "
            "(call .copy() on it)")
    return tuple(stride // tensor.itemsize for stride in tensor.strides)


def size_of(shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


def address(name, tensor, written=False):
    """Returns the tensor's address; None if it has no elements."""
    if is_torch(tensor):
        try:
            found = tensor.data_ptr()
        except (RuntimeError, NotImplementedError):
            found = 0
        if not found and size_of(tensor.shape):
            refuse_without_memory(name, tensor)
        return found or None
    found, read_only = tensor.__array_interface__["data"]
    if written and read_only:
        raise ValueError(f"{name} is read-only; must be writable")
    return found if size_of(tensor.shape) else None


def layout_strides(name, tensor, layout=ROWS):
    """Returns strides over (batch, rows, heads). The rows of a transposed tensor are its head_dim."""
    strides = element_strides(name, tensor)
    return (strides[0], strides[1], strides[2]) if layout == ROWS else (strides[0], strides[2], strides[1])


def target_of(tensor):
    """Returns the tensor's device in attune's form: "cpu" or "cuda:N"."""
    return str(tensor.device) if is_torch(tensor) else "cpu"


def check_device(name, tensor):
    """Returns the tensor's target. Raises if kernels cannot reach it there."""
    target = target_of(tensor)
    if target != "cpu" and not (is_torch(tensor) and tensor.is_cuda):
        raise ValueError(f"{name} is on {target}; must be on cpu or cuda")
    return target


def native_dtype(like, dtype, name="dtype"):
    """Returns PyTorch's or NumPy's own dtype for attune's name. NumPy's 8-bit arrays are uint8."""
    if is_torch(like):
        library, names = sys.modules["torch"], {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
    else:
        library, names = sys.modules["numpy"], {"e4m3": "uint8", "e5m2": "uint8"}
        if dtype_text(like.dtype) == dtype:
            return like.dtype  # dtypes of ml_dtypes too
    names = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", **names}
    found = getattr(library, names.get(dtype, ""), None)
    if found is None:
        raise ValueError(
            f"{name} is {dtype}; must be {', '.join(x for x in names if hasattr(library, names[x]))}")
    return found


def empty(like, shape, dtype):
    """Returns a new tensor on the device of `like`. dtype: a result of native_dtype()."""
    if is_torch(like):
        return sys.modules["torch"].empty(shape, dtype=dtype, device=like.device)
    return sys.modules["numpy"].empty(shape, dtype=dtype)


def fill(tensor, number):
    tensor.fill_(number) if is_torch(tensor) else tensor.fill(number)


def num_blocks(rows, scale_block):
    return -(-rows // scale_block) if scale_block > 0 else 1
