# SPDX-License-Identifier: Apache-2.0
"""What the C module (runtime/python/module/) needs of Python: which types of arguments there are, the functions that check a call, and
recipes, by which calls like one that was checked are run without any of this. Used by _context.py, _attention.py, _kvcache.py, _append.py and
_backward.py."""
import contextlib
import ctypes
import functools
import sys

from . import _tensors as tensors
from ._library import AppendOperands, CacheOperands, Capture, DropoutOperands, GradientOperands, Operands, Scale, ScoreOperands, Tensor, module
from ._torch import capturing, forward_derivatives, untraced

CALLS_KEPT = 512  # of contexts that are no argument, by what they depend on
_UNKNOWN, _IDENTITY, _ARRAY, _CONTEXT = range(4)             # TypeKind of tensors.h
_ALIGNED, _WRITTEN, _GUARDED, _IN_PLACE, _WITH_PRIOR, _NOT_WITH_PRIOR = 1, 2, 4, 8, 16, 32  # flags of entry.h
_TENSOR_BYTES, _CAPTURE_BYTES = ctypes.sizeof(Tensor), ctypes.sizeof(Capture)
_RUN_OPERANDS = ("q", "k", "v", "o", "lse", "q_scale", "k_scale", "v_scale")
_FEATURES = ("bias", "relative_bias", "alibi_slopes", "mask_tensor", "key_lengths", "documents", "prefix", "sinks")


def _probe(of):
    """What arguments of this very type are; subclasses of tensors have ways of their own, and take Python's."""
    from ._context import Context
    if of is Context:
        return _CONTEXT
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and of is numpy.ndarray:
        return _ARRAY
    if issubclass(of, type) or (numpy is not None and issubclass(of, numpy.dtype)) or of is getattr(
            torch, "dtype", None):
        return _IDENTITY
    if torch is not None and of in (torch.Tensor, getattr(getattr(torch, "nn", None), "Parameter", None)):
        capsule = getattr(of, "__dlpack_c_exchange_api__", None)
        if capsule is None:
            return None
        state = lambda: tuple(
            (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cuda", "cpu"))
        return (capsule, guard_maker(torch), torch.is_grad_enabled, torch._C._len_torch_dispatch_stack,
                torch._C._is_tracing, torch._C._is_any_autocast_enabled, state, forward_derivatives(torch))
    return None


def _for_compiled(torch):
    """What torch.compile calls when its graphs run; None where it stands elsewhere."""
    return getattr(getattr(torch._C, "_dynamo", None), "guards", None)


@contextlib.contextmanager
def _unrecorded(torch):
    """A scope in which neither dispatch modes nor torch.jit.trace see anything."""
    from torch.utils._python_dispatch import _disable_current_modes
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with _disable_current_modes():
            yield
    finally:
        torch._C._set_tracing_state(state)


@functools.lru_cache(maxsize=None)
def guard_maker(torch):
    """What guard.h describes, by the check that torch.compile makes before it runs a graph again: types, dispatch keys as scopes leave them,
    dtypes, devices and gradients of several tensors, in one call. None where it is not there or not as it should be."""
    guards = getattr(_for_compiled(torch), "TensorGuards", None)
    if guards is None:
        return None

    def make(*tensors):
        any_layout = [[None] * x.dim() for x in tensors]  # of which there are words in the key
        return guards(*tensors, dynamic_dims_sizes=any_layout, dynamic_dims_strides=any_layout).check

    try:
        with _unrecorded(torch), torch.inference_mode(False), torch.enable_grad(), torch.autocast(
                "cpu", torch.bfloat16, enabled=False):  # the first call may stand in any scope
            x = torch.zeros(1, device="cpu")
            check = make(x)
            with torch.autocast("cpu", torch.bfloat16):
                in_autocast = check(x)
            with torch._C._IncludeDispatchKeyGuard(torch._C._parse_dispatch_key("Tracer")):  # as torch.jit.trace does
                in_trace = check(x)
            others = torch._neg_view(x), x.clone().requires_grad_(), x.half(), x.to("meta")
            passed = [check(torch.zeros(2, device="cpu")), *map(check, others), in_autocast, in_trace]
    except Exception:  # of whatever kind: PyTorch promises none of this
        return None
    return make if passed == [True, *[False] * 6] else None


def table(capacity):
    return None if module is None else module.Table(capacity)


_tables = []  # one for each function: its arguments mean what no other's do
if module is not None:
    module.set_probe(_probe)


def forget(calls):
    """Calls of one context, and those without a Context among their arguments, take Python's way once more."""
    if module is not None:
        calls.clear()
        for each in _tables:
            each.clear()


def parameters_of(function, skip=0):
    """Names, defaults of the last ones, how many are required and how many may be given without a name. Without inspect, whose import
    takes longer than that of attune."""
    code = function.__code__
    positional = code.co_argcount - skip
    names = code.co_varnames[skip:code.co_argcount + code.co_kwonlyargcount]
    defaults = (*(function.__defaults__ or ()), *((function.__kwdefaults__ or {})[name] for name in names[positional:]))
    return names, defaults, len(names) - len(defaults), positional


def function(checked, name, parameters=None, contexts=True, watch=()):
    """The quick way of a function whose arguments are those of checked(), or `parameters` as parameters_of() gives them; checked() gives (result,
    recipe). `contexts`: calls with a Context are kept by that. `watch`: (object, name, function): while the object's
    attribute or what the function returns is true, all calls are checked()'s."""
    names, defaults, required, positional = parameters or parameters_of(checked)
    _tables.append(table(CALLS_KEPT))
    context = names.index("context") if contexts else -1
    return module.function(name, "", names, defaults, required, positional, context, checked, _tables[-1],
                           *((watch,) if watch else ()))


def without_recipe(checked):
    """What it gives, by Python's way."""
    return untraced(lambda *arguments, **choices: checked(*arguments, **choices)[0])


def behind(public, checked):
    """What a public function calls, whose arguments are those of checked(): the quick way where there is a C module."""
    checked.__qualname__ = public.__name__  # in errors of arguments that do not fit
    public.__wrapped__ = checked            # whose parameters are shown
    public._torchdynamo_disable = True      # callers that are traced stop here
    return without_recipe(checked) if module is None else function(checked, public.__name__)


def plan_method(entry, checked):
    """As function(), for a method; `entry`: the one in Python that it replaces."""
    names, defaults, required, positional = parameters_of(checked, skip=1)
    shown = ", ".join([
        *names[:required], *(f"{name}={default!r}" for name, default in zip(names[required:], defaults))])
    return module.plan_method(entry.__name__, f"{entry.__name__}($self, {shown})\n--\n\n{entry.__doc__}", names,
                              defaults, required, positional, checked)


def _is_operand(value):
    return tensors.is_torch(value) or tensors.is_numpy(value)


def _indices(arguments):
    """Numbers of the tensors among the arguments, by name, as key.c counts them."""
    found, count = {}, 0
    for name, value in arguments.items():
        for part in value if type(value) is tuple else (value,):
            if _is_operand(part):
                found.setdefault(name, []).append(count)
                count += 1
    return found


def _span(name, tensor):
    """Bytes from the first element to behind the last."""
    if tensors.size_of(tensor.shape) == 0:
        return 0
    strides = tensors.element_strides(name, tensor)
    return (sum(
        (extent - 1) * abs(stride) for extent, stride in zip(tensor.shape, strides)) + 1) * tensors.item_bytes(tensor)


def _at(field, inner=Tensor.data):
    """Where a field of attune_operands has its address."""
    return getattr(Operands, field).offset + inner.offset


def _main_places(indices, layout, arguments, out_name):
    in_place = _IN_PLACE if layout.q == layout.o else 0
    yield indices["q"][0], (_at("q"),), layout.q.span, _ALIGNED | _GUARDED | in_place
    yield indices["k"][0], (_at("k"),), layout.k.span, _ALIGNED | _GUARDED
    yield indices["v"][0], (_at("v"),), layout.v.span, _ALIGNED | _GUARDED
    if out_name in indices:
        yield indices[out_name][0], (_at("o"),), layout.o.span, _ALIGNED | _WRITTEN | in_place
    if "lse" in indices:
        yield indices["lse"][0], (Operands.lse.offset,), layout.lse.span, _WRITTEN
    for name in ("q_scale", "k_scale", "v_scale"):
        if name in indices:
            yield indices[name][0], (_at(name, Scale.data),), _span(name, arguments[name]), _GUARDED


def _capture_places(indices, scores, first):
    """Captures behind the struct, in the order of Scores.captures; one tensor may be two of them."""
    places = {}
    names = [name for name, _, _ in scores.captures]
    for feature in _FEATURES:
        captures = [i for i, name in enumerate(names) if name == feature or name in (f"{feature}_q", f"{feature}_kv")]
        for capture, index in zip(captures, indices.get(feature, []) * len(captures)):
            places.setdefault(index, []).append(first + capture * _CAPTURE_BYTES + Capture.data.offset)
    return [(index, tuple(at), 0, 0) for index, at in places.items()]


def _numbers(scales):
    """Whether a factor is a number that became a tensor of that one call."""
    return any(scale is not None and not _is_operand(scale) and scale != 1 for scale in scales)


def _recipe(plan, keep, stream, blob, pointers, places, fresh, results, indices):
    if sorted(index for index, *_ in places) != sorted(sum(indices.values(), [])):
        return None  # a tensor stands where its value counts, as a scale
    return (keep, plan.handle.value, plan.ordinal, plan.workspace_bytes, plan.zeroed_bytes, stream, blob,
            tuple(pointers), tuple(places), tuple(fresh), tuple(results))


def recipe_of_run(plan, layout, operands, q, k, v, o, lse, scales, stream):
    """What entry.h describes, for calls of Plan.run() like this one; None where there is none. The plan itself owns it."""
    if _numbers(scales) or not (stream is None or type(stream) is int):
        return None
    arguments = dict(zip(_RUN_OPERANDS, (q, k, v, o, lse, *scales)))
    indices = _indices(arguments)
    places = list(_main_places(indices, layout, arguments, "o"))
    pointers, blob, _, kept = _with_structs(operands)
    return _recipe(plan, kept, -1 if stream is None else stream, blob, pointers, places, (), (), indices)


def _with_structs(operands):
    """Pairs of a pointer's place and its aim, the bytes of a struct and of the structs that it points to, where each of those begins, by name,
    and what they point to."""
    blob, pointers, begins, kept = bytes(operands), [], {}, []
    for name in ("scores", "gradients", "dropout", "cache", "append"):
        if getattr(operands, name):
            struct = getattr(operands, name).contents
            begins[name] = len(blob)
            pointers.append((getattr(Operands, name).offset, len(blob)))
            blob += bytes(struct)
            kept.append(struct)
    scores = operands.scores.contents if operands.scores else None
    if scores is not None and scores.num_captures:
        begins["captures"] = len(blob)
        pointers.append((begins["scores"] + ScoreOperands.captures.offset, len(blob)))
        blob += bytes((Capture * scores.num_captures).from_address(ctypes.addressof(scores.captures.contents)))
    return pointers, blob, begins, kept


def _seed_places(indices, begins):
    """Of seed and offset where they are tensors."""
    return [(indices[name][0], (begins["dropout"] + getattr(DropoutOperands, f"{name}_address").offset, ), 0, 0)
            for name in ("seed", "offset") if name in indices]


def _makers(made):
    """Two ways to make tensors with shape, strides, dtype and device of `made`, a new one of PyTorch's. The first is what compiled graphs call, past
    the dispatcher, in half the time of the second; it serves PyTorch's current device alone, and not all versions have it. The second makes
    them like `made` itself, which gives its memory back."""
    torch = sys.modules["torch"]
    unseen = getattr(_for_compiled(torch), f"_empty_strided_{made.device.type}", None)
    found = ()
    if unseen is not None:
        arguments = tuple(made.shape), tuple(made.stride()), made.dtype
        found = ((unseen, arguments),) if _makes_like(unseen, arguments, made) else ()
    made.untyped_storage().resize_(0)
    return (*found, (torch.empty_like, (made,)))


def _makes_like(make, arguments, wanted):
    try:
        made = make(*arguments)
        return (type(made), made.shape, made.stride(), made.dtype,
                made.device.type) == (type(wanted), wanted.shape, wanted.stride(), wanted.dtype, wanted.device.type)
    except Exception:  # of whatever kind: PyTorch promises nothing of it
        return False


def _new(like, shape, dtype, *at, strides=None, heads_first=False):
    """One that each call allocates: its makers, places, rank; None where there are none: memory is short, or a mode makes others. strides: None, or
    those that it has. heads_first: of PyTorch; it is shown with its heads before its rows."""
    if tensors.is_numpy(like):
        return ((sys.modules["numpy"].empty, (shape, dtype)),), at, len(shape)
    torch = sys.modules["torch"]
    try:
        made = (torch.empty(shape, dtype=dtype, device=like.device) if strides is None else
                torch.empty_strided(shape, strides, dtype=dtype, device=like.device))
    except RuntimeError:
        return None
    if type(made) is not torch.Tensor:
        return None
    return _makers(made.transpose(1, 2) if heads_first else made), at, len(shape)


def recipe_of_attention(call, operands, arguments, scores, kept, stream, heads_first=False, empty_lse=False):
    """What entry.h describes, for calls of attention() like this one; None where there is none. heads_first: o is [batch, num_heads, seqlen_q,
    head_dim_v], in the same memory. empty_lse: without lse there is one of no elements in its place."""
    if _numbers(arguments[name] for name in ("q_scale", "k_scale", "v_scale")) or capturing(call.plan.ordinal, stream):
        return None
    indices = _indices({name: value for name, value in arguments.items() if name != "context"})
    pointers, blob, begins, _ = _with_structs(operands)
    places = list(_main_places(indices, call.layout, arguments, "out"))
    if scores is not None:
        places += [*_capture_places(indices, scores, begins.get("captures", 0)), *_seed_places(indices, begins)]
    q, fresh, results = arguments["q"], [], []
    if arguments["out"] is None:
        fresh.append(
            _new(q, call.out_shape, call.out_dtype, _at("o"), strides=call.out_strides, heads_first=heads_first))
    results.append(-1 if arguments["out"] is None else indices["out"][0])
    if arguments["return_lse"]:
        fresh.append(_new(q, call.lse_shape, call.lse_dtype, Operands.lse.offset))
        results.append(-len(fresh))
    elif empty_lse:
        fresh.append(_new(q, (0,), call.lse_dtype))
        results.append(-len(fresh))
    if None in fresh:
        return None
    return _recipe(call.plan, (call.plan, kept), -1, blob, pointers, places, fresh, results, indices)


def recipe_of_gradients(call, operands, arguments, scores, kept, stream, found, heads_first=False):
    """What entry.h describes, for calls of attention_backward() like this one, whose gradients are `found`; None where there is none: of tensors of
    PyTorch alone."""
    if not all(type(x) is sys.modules["torch"].Tensor for x in found.values()) or capturing(call.plan.ordinal, stream):
        return None
    indices = _indices({name: value for name, value in arguments.items() if name != "context"})
    pointers, blob, begins, _ = _with_structs(operands)
    of_gradients = lambda field, inner: begins["gradients"] + getattr(GradientOperands, field).offset + inner
    places = [(indices[name][0], (_at(name),), 0, _ALIGNED) for name in ("q", "k", "v", "o")]
    places += [(indices["dout"][0], (of_gradients("dout", Tensor.data.offset), ), 0, _ALIGNED),
               (indices["lse"][0], (Operands.lse.offset, ), 0, 0)]
    if "dlse" in indices:
        places.append((indices["dlse"][0], (of_gradients("dlse", 0),), 0, 0))
    if scores is not None:
        places += [*_capture_places(indices, scores, begins.get("captures", 0)), *_seed_places(indices, begins)]
    fresh = []
    for name, gradient in found.items():
        made = sys.modules["torch"].empty_like(gradient.transpose(1, 2) if heads_first else gradient)
        fresh.append((_makers(made), (of_gradients(name, Tensor.data.offset),), gradient.dim()))
    return _recipe(call.plan, (call.plan, kept), -1, blob, pointers, places, fresh,
                   [-1 - number for number in range(len(fresh))], indices)


def _places_beside_caches(indices, begins, arguments):
    """Of lists and of factors."""
    for name in ("kv_lengths", "page_table", "slots", "q_begins", "kv_begins"):
        if name in indices:
            yield indices[name][0], (begins["cache"] + getattr(CacheOperands, name).offset,), 0, 0
    for name in ("k_scale", "v_scale"):
        if name in indices:
            yield indices[name][0], (_at(name, Scale.data),), _span(name, arguments[name]), _GUARDED


def recipe_of_caches(call, operands, arguments, scores, kept, stream):
    """What entry.h describes, for calls of attention_kvcache() like this one; None where there is none."""
    if _numbers((arguments["k_scale"], arguments["v_scale"])) or capturing(call.plan.ordinal, stream):
        return None
    indices = _indices({name: value for name, value in arguments.items() if name != "context"})
    pointers, blob, begins, _ = _with_structs(operands)
    beside_k = _WITH_PRIOR if call.plan.problem.v_in_k else _NOT_WITH_PRIOR  # other kernels serve values that are the first columns of keys
    if arguments["v_cache"].shape[-1] == arguments["k_cache"].shape[-1]:
        beside_k = 0
    places = [(indices[name][0], (_at(field), ), call.extents[name].span, flags)
              for name, field, flags in (("q", "q", _ALIGNED | _GUARDED), ("k_cache", "k", _ALIGNED | _GUARDED),
                                         ("v_cache", "v", _ALIGNED | _GUARDED | beside_k))]
    places += _places_beside_caches(indices, begins, arguments)
    if scores is not None:
        places += _capture_places(indices, scores, begins.get("captures", 0))
    q, fresh, results = arguments["q"], [], [-1]
    if arguments["out"] is None:
        fresh.append(_new(q, (*q.shape[:-1], arguments["v_cache"].shape[-1]), q.dtype, _at("o")))
    else:
        places.append((indices["out"][0], (_at("o"),), call.extents["out"].span, _ALIGNED | _WRITTEN))
        results = [indices["out"][0]]
    if arguments["return_lse"]:
        fresh.append(_new(q, (q.shape[0], q.shape[2], q.shape[1]), tensors.native_dtype(q, "fp32"),
                          Operands.lse.offset))
        results.append(-len(fresh))
    return None if None in fresh else _recipe(call.plan,
                                              (call.plan, kept), -1, blob, pointers, places, fresh, results, indices)


def recipe_of_append(call, operands, arguments, kept, stream):
    """What entry.h describes, for calls of append_kv() like this one; None where there is none."""
    if _numbers((arguments["k_scale"], arguments["v_scale"])) or capturing(call.plan.ordinal, stream):
        return None
    indices = _indices({name: value for name, value in arguments.items() if name != "context"})
    pointers, blob, begins, _ = _with_structs(operands)
    of_append = lambda field, inner=0: begins["append"] + getattr(AppendOperands, field).offset + inner
    extents, q = call.extents, arguments["q"]
    places = [(indices[name][0], (of_append(name, Tensor.data.offset), ), extents[name].span, _ALIGNED | _GUARDED)
              for name in ("k", "v")]
    places += [(indices[name][0], (_at(field), ), extents[name].span, _ALIGNED | _WRITTEN)
               for name, field in (("k_cache", "k"), ("v_cache", "v"))]
    places += [(indices[name][0], (of_append(name, Tensor.data.offset), ), 0, _ALIGNED) for name in ("cos", "sin")
               if name in indices]
    places += [(indices[name][0], (of_append(name),), 0, 0) for name in ("positions", "row_slots") if name in indices]
    places += _places_beside_caches(indices, begins, arguments)
    fresh, results = [], []
    if q is not None:
        places.append((indices["q"][0], (_at("q"),), extents["q"].span, _ALIGNED | _GUARDED))
        results.append(indices["q_out"][0] if "q_out" in indices else -1)
    if "q_out" in indices:
        places.append((indices["q_out"][0], (_at("o"),), extents["q_out"].span, _ALIGNED | _WRITTEN))
    elif q is not None:
        fresh.append(_new(q, tuple(q.shape), q.dtype, _at("o")))
    return None if None in fresh else _recipe(call.plan,
                                              (call.plan, kept), -1, blob, pointers, places, fresh, results, indices)
