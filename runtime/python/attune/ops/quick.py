# SPDX-License-Identifier: Apache-2.0
"""The Python side of the C module (runtime/python/module/): the types of arguments, the functions that check a call,
and recipes. With a recipe the C module repeats calls like a checked one without Python. Used by context.py,
attention.py, kvcache.py, append.py and backward.py."""
import contextlib
import functools
import sys

from ..core import tensors
from ..core.library import module
from ..core.torch_state import capturing, forward_derivatives, profiler_question
from ..score.features import TENSORS

context_type = None  # the class Context; set by context.py
CALLS_KEPT = 512  # for calls without a Context argument
_UNKNOWN, _IDENTITY, _ARRAY, _CONTEXT = range(4)  # TypeKind in tensors.h
_ALIGNED, _WRITTEN, _GUARDED, _IN_PLACE, _WITH_PRIOR, _NOT_WITH_PRIOR = 1, 2, 4, 8, 16, 32  # flags of entry.h
_DATA, _LSE = module.Tensor.offsets["data"], module.Operands.offsets["lse"]
_STRUCTS = {name: getattr(module, of).offsets
            for name, of in (("scores", "ScoreOperands"), ("gradients", "GradientOperands"),
                             ("dropout", "DropoutOperands"), ("cache", "CacheOperands"), ("append", "AppendOperands"))}
_RUN_OPERANDS = ("q", "k", "v", "o", "lse", "q_scale", "k_scale", "v_scale")


def _probe(of):
    """Returns the kind of arguments of exactly this type. Subclasses of tensors behave in their own ways, so they take
    the Python path."""
    if of is context_type:
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
                torch._C._is_tracing, profiler_question(torch), torch._C._is_any_autocast_enabled, state,
                forward_derivatives(torch))
    return None


def _for_compiled(torch):
    """Returns the module with functions for torch.compile's graphs; None if PyTorch has it elsewhere."""
    return getattr(getattr(torch._C, "_dynamo", None), "guards", None)


@contextlib.contextmanager
def _unrecorded(torch):
    """Returns a scope in which neither dispatch modes nor torch.jit.trace see anything."""
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
    """Returns the guard maker that guard.h describes, or None if it is missing or does not work as expected.

    A guard is torch.compile's check before it runs a graph again. One call compares the types, dispatch keys (which
    autocast and tracing change), dtypes, devices and gradients of several tensors."""
    guards = getattr(_for_compiled(torch), "TensorGuards", None)
    if guards is None:
        return None

    def make(*tensors):
        any_layout = [[None] * x.dim() for x in tensors]  # the key holds shapes and strides
        return guards(*tensors, dynamic_dims_sizes=any_layout, dynamic_dims_strides=any_layout).check

    try:
        with _unrecorded(torch), torch.inference_mode(False), torch.enable_grad(), torch.autocast(
                "cpu", torch.bfloat16, enabled=False):  # the first call may be in any scope
            x = torch.zeros(1, device="cpu")
            check = make(x)
            with torch.autocast("cpu", torch.bfloat16):
                in_autocast = check(x)
            with torch._C._IncludeDispatchKeyGuard(torch._C._parse_dispatch_key("Tracer")):  # as torch.jit.trace does
                in_trace = check(x)
            others = torch._neg_view(x), x.clone().requires_grad_(), x.half(), x.to("meta")
            passed = [check(torch.zeros(2, device="cpu")), *map(check, others), in_autocast, in_trace]
    except Exception:  # of any kind: PyTorch promises none of this
        return None
    return make if passed == [True, *[False] * 6] else None


_tables = []  # one per function: equal arguments mean other things in another function
module.set_probe(_probe)


def forget(calls):
    """Forgets cached fast paths of one context, and of calls without a Context argument."""
    calls.clear()
    for each in _tables:
        each.clear()


def parameters_of(function, skip=0):
    """Returns (names, defaults of the last ones, number of required ones, number of positional ones) of a function's
    parameters. Does not use inspect, which takes longer to import than attune."""
    code = function.__code__
    positional = code.co_argcount - skip
    names = code.co_varnames[skip:code.co_argcount + code.co_kwonlyargcount]
    defaults = (*(function.__defaults__ or ()), *((function.__kwdefaults__ or {})[name] for name in names[positional:]))
    return names, defaults, len(names) - len(defaults), positional


def function(checked, name, parameters=None, contexts=True, watch=()):
    """Returns the fast path of a function whose arguments are those of checked(), or `parameters` in parameters_of()'s
    form.

    checked() returns (result, recipe). contexts: True keeps calls with a Context on that. watch: (object, name,
    function): while the object's attribute or the function's result is true, all calls go to checked()."""
    names, defaults, required, positional = parameters or parameters_of(checked)
    _tables.append(module.Table(CALLS_KEPT))
    context = names.index("context") if contexts else -1
    return module.function(name, "", names, defaults, required, positional, context, checked, _tables[-1],
                           *((watch,) if watch else ()))




def plan_method(entry, checked):
    """Returns the same as function(), for a method. entry: the Python method that it replaces."""
    names, defaults, required, positional = parameters_of(checked, skip=1)
    shown = ", ".join([
        *names[:required], *(f"{name}={default!r}" for name, default in zip(names[required:], defaults))])
    return module.plan_method(entry.__name__, f"{entry.__name__}($self, {shown})\n--\n\n{entry.__doc__}", names,
                              defaults, required, positional, checked)


def _is_operand(value):
    return tensors.is_torch(value) or tensors.is_numpy(value)


def _indices(arguments):
    """Returns the numbers of the tensors among the arguments by name, as key.c counts them."""
    found, count = {}, 0
    for name, value in arguments.items():
        for part in value if type(value) is tuple else (value,):
            if _is_operand(part):
                found.setdefault(name, []).append(count)
                count += 1
    return found


def _span(name, tensor):
    """Returns the bytes from a tensor's first element to the end of its last."""
    if tensors.size_of(tensor.shape) == 0:
        return 0
    strides = tensors.element_strides(name, tensor)
    return (sum(
        (extent - 1) * abs(stride) for extent, stride in zip(tensor.shape, strides)) + 1) * tensors.item_bytes(tensor)


def _at(field):
    """Returns the offset of the address of a tensor, or of factors, in attune_operands."""
    of = module.Scale.offsets if field.endswith("_scale") else module.Tensor.offsets
    return module.Operands.offsets[field] + of["data"]


def _main_places(indices, layout, arguments, out_name):
    in_place = _IN_PLACE if layout.q == layout.o else 0
    yield indices["q"][0], (_at("q"),), layout.q.span, _ALIGNED | _GUARDED | in_place
    yield indices["k"][0], (_at("k"),), layout.k.span, _ALIGNED | _GUARDED
    yield indices["v"][0], (_at("v"),), layout.v.span, _ALIGNED | _GUARDED
    if out_name in indices:
        yield indices[out_name][0], (_at("o"),), layout.o.span, _ALIGNED | _WRITTEN | in_place
    if "lse" in indices:
        yield indices["lse"][0], (_LSE,), layout.lse.span, _WRITTEN
    for name in ("q_scale", "k_scale", "v_scale"):
        if name in indices:
            yield indices[name][0], (_at(name),), _span(name, arguments[name]), _GUARDED


def _capture_places(indices, scores, first):
    """Returns the places of captures behind the struct, in the order of Scores.captures. One tensor may be two
    captures."""
    places, first = {}, first + module.Capture.offsets["data"]
    names = [name for name, _, _ in scores.captures]
    for feature in TENSORS:
        captures = [i for i, name in enumerate(names) if name in feature.captures]
        for capture, index in zip(captures, indices.get(feature.keyword, []) * len(captures)):
            places.setdefault(index, []).append(first + capture * module.Capture.num_bytes)
    return [(index, tuple(at), 0, 0) for index, at in places.items()]


def _numbers(scales):
    """True if a factor is a number, which became a tensor of one call."""
    return any(scale is not None and not _is_operand(scale) and scale != 1 for scale in scales)


def _recipe(plan, keep, stream, blob, pointers, places, fresh, results, indices):
    if sorted(index for index, *_ in places) != sorted(sum(indices.values(), [])):
        return None  # a tensor's value matters, as a scale's does
    return (keep, plan.handle, plan.ordinal, plan.workspace_bytes, plan.zeroed_bytes, stream, blob,
            tuple(pointers), tuple(places), tuple(fresh), tuple(results))


def recipe_of_run(plan, layout, operands, q, k, v, o, lse, scales, stream):
    """Returns the recipe (see entry.h) for calls of Plan.run() like this one; None if there is none. The plan itself
    owns it."""
    if _numbers(scales) or not (stream is None or type(stream) is int):
        return None
    arguments = dict(zip(_RUN_OPERANDS, (q, k, v, o, lse, *scales)))
    indices = _indices(arguments)
    places = list(_main_places(indices, layout, arguments, "o"))
    pointers, blob, _, kept = _with_structs(operands)
    return _recipe(plan, kept, -1 if stream is None else stream, blob, pointers, places, (), (), indices)


def _with_structs(operands):
    """Returns (pairs of a pointer's place and its target, the bytes of the struct and of structs that it points to, the
    begins of these by name, the structs)."""
    blob, pointers, begins, kept = bytes(operands), [], {}, []
    for name in _STRUCTS:
        struct = getattr(operands, name)
        if struct is not None:
            begins[name] = len(blob)
            pointers.append((module.Operands.offsets[name], len(blob)))
            blob += bytes(struct)
            kept.append(struct)
    if operands.scores is not None and operands.scores.num_captures:
        begins["captures"] = len(blob)
        pointers.append((begins["scores"] + _STRUCTS["scores"]["captures"], len(blob)))
        blob += operands.scores.captures
    return pointers, blob, begins, kept


def _seed_places(indices, begins):
    """Returns the places of seed and offset, if they are tensors."""
    return [(indices[name][0], (begins["dropout"] + _STRUCTS["dropout"][f"{name}_address"], ), 0, 0)
            for name in ("seed", "offset") if name in indices]


def _makers(made):
    """Returns one or two ways to make tensors with the shape, strides, dtype and device of `made`, a new PyTorch
    tensor.

    The first is the function of compiled graphs, without the dispatcher; it takes half the time. It serves only
    PyTorch's current device, and not all versions have it. The second makes tensors like `made` itself, which gives its
    memory back."""
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
    except Exception:  # of any kind: PyTorch promises none of this
        return False


def _new(like, shape, dtype, *at, strides=None, heads_first=False):
    """Returns (makers, places, rank) of a tensor that each call allocates. None if memory is short, or if a mode makes
    other tensors. strides: None for a contiguous one. heads_first: a PyTorch tensor is shown with its heads before its
    rows."""
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
    """Returns the recipe (see entry.h) for calls of attention() like this one; None if there is none.

    heads_first: o is [batch, num_heads, seqlen_q, head_dim_v], in the same memory. empty_lse: without lse the call
    returns one of no elements."""
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
        fresh.append(_new(q, call.lse_shape, call.lse_dtype, _LSE))
        results.append(-len(fresh))
    elif empty_lse:
        fresh.append(_new(q, (0,), call.lse_dtype))
        results.append(-len(fresh))
    if arguments["return_max_logits"]:
        fresh.append(_new(q, (q.shape[2],), call.lse_dtype, _at("o_scale")))
        results.append(-len(fresh))
    if None in fresh:
        return None
    return _recipe(call.plan, (call.plan, kept), -1, blob, pointers, places, fresh, results, indices)


def recipe_of_gradients(call, operands, arguments, scores, kept, stream, found, heads_first=False):
    """Returns the recipe (see entry.h) for calls of attention_backward() like this one, whose gradients are `found`;
    None if there is none. Only PyTorch tensors have one."""
    if not all(type(x) is sys.modules["torch"].Tensor for x in found.values()) or capturing(call.plan.ordinal, stream):
        return None
    indices = _indices({name: value for name, value in arguments.items() if name != "context"})
    pointers, blob, begins, _ = _with_structs(operands)
    of_gradients = lambda field, inner=0: begins["gradients"] + _STRUCTS["gradients"][field] + inner
    places = [(indices[name][0], (_at(name),), 0, _ALIGNED) for name in ("q", "k", "v", "o")]
    places += [(indices["dout"][0], (of_gradients("dout", _DATA), ), 0, _ALIGNED),
               (indices["lse"][0], (_LSE, ), 0, 0)]
    if "dlse" in indices:
        places.append((indices["dlse"][0], (of_gradients("dlse"),), 0, 0))
    if scores is not None:
        places += [*_capture_places(indices, scores, begins.get("captures", 0)), *_seed_places(indices, begins)]
    fresh = []
    for name, gradient in found.items():
        made = sys.modules["torch"].empty_like(gradient.transpose(1, 2) if heads_first else gradient)
        fresh.append((_makers(made), (of_gradients(name, _DATA),), gradient.dim()))
    return _recipe(call.plan, (call.plan, kept), -1, blob, pointers, places, fresh,
                   [-1 - number for number in range(len(fresh))], indices)


def _places_beside_caches(indices, begins, arguments):
    """Yields the places of lists and of factors."""
    for name in ("kv_lengths", "page_table", "slots", "q_begins", "kv_begins"):
        if name in indices:
            yield indices[name][0], (begins["cache"] + _STRUCTS["cache"][name],), 0, 0
    for name in ("k_scale", "v_scale"):
        if name in indices:
            yield indices[name][0], (_at(name),), _span(name, arguments[name]), _GUARDED


def recipe_of_caches(call, operands, arguments, scores, kept, stream):
    """Returns the recipe (see entry.h) for calls of attention_kvcache() like this one; None if there is none."""
    if _numbers((arguments["k_scale"], arguments["v_scale"])) or capturing(call.plan.ordinal, stream):
        return None
    indices = _indices({name: value for name, value in arguments.items() if name != "context"})
    pointers, blob, begins, _ = _with_structs(operands)
    # values that are the first columns of keys have their own kernels
    beside_k = _WITH_PRIOR if call.plan.problem.v_in_k else _NOT_WITH_PRIOR
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
                          _LSE))
        results.append(-len(fresh))
    return None if None in fresh else _recipe(call.plan,
                                              (call.plan, kept), -1, blob, pointers, places, fresh, results, indices)


def recipe_of_append(call, operands, arguments, kept, stream):
    """Returns the recipe (see entry.h) for calls of append_kv() like this one; None if there is none."""
    if _numbers((arguments["k_scale"], arguments["v_scale"])) or capturing(call.plan.ordinal, stream):
        return None
    indices = _indices({name: value for name, value in arguments.items() if name != "context"})
    pointers, blob, begins, _ = _with_structs(operands)
    of_append = lambda field, inner=0: begins["append"] + _STRUCTS["append"][field] + inner
    extents, q = call.extents, arguments["q"]
    places = [(indices[name][0], (of_append(name, _DATA), ), extents[name].span, _ALIGNED | _GUARDED)
              for name in ("k", "v")]
    places += [(indices[name][0], (_at(field), ), extents[name].span, _ALIGNED | _WRITTEN)
               for name, field in (("k_cache", "k"), ("v_cache", "v"))]
    places += [(indices[name][0], (of_append(name, _DATA), ), 0, _ALIGNED) for name in ("cos", "sin")
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
