#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C module of attune's Python package on PyTorch's CPU tensors. Known calls run in it; every form of tensor and
every scope gives the outcome of the Python path, word for word. Skips aloud (status 77) without PyTorch or the CPU
target, or if PyTorch has no DLPack exchange functions (before 2.10), since calls use the Python path there.

    quick_torch_test.py --outcomes      prints outcomes as JSON, for the comparison"""
import contextlib
import gc
import subprocess
import sys
import unittest

import attune
from attune.core.library import module

try:
    import numpy  # the cases compare PyTorch's tensors through it
    import torch
except ImportError as error:
    print(f"SKIP: {error}")
    sys.exit(77)

import quick_cases as cases

TENSORS = {name: torch.from_numpy(cases.values(name)) for name in ("q", "k", "v", "out", "lse")}
Q, K, V = (TENSORS[name] for name in "qkv")


class Sub(torch.Tensor):
    pass


def with_memory(make):
    """Returns a tensor made in a scope of PyTorch; a plain one if this version has no such scope."""
    try:
        return make()
    except (ImportError, RuntimeError, NotImplementedError, AttributeError):
        return None


def fake(x):
    from torch._subclasses.fake_tensor import FakeTensorMode
    return FakeTensorMode().from_tensor(x)


def variants():
    """Tensors that stand in for those of a call that is known."""
    found = [("out", Q), ("out", torch.zeros(2, 5, 4, 32)[..., ::2]), ("out", torch.zeros(2, 6, 4, 16)[:, 1:]),
             ("out", None), ("out", TENSORS["lse"]), ("out", torch.zeros(2, 5, 4, 16).requires_grad_()),
             ("out", torch.zeros(2, 5, 4, 16, device="meta"))]
    for name in "qkv":
        x = TENSORS[name]
        moved = torch.zeros(x.numel() + 1)[1:].view(x.shape).copy_(x)
        zero = torch.zeros(x.shape, dtype=torch.complex64)
        makers = (lambda: moved, lambda: x.bfloat16(), lambda: x.half(), lambda: x.double(), lambda: x.int(),
                  lambda: x[0], lambda: x[None], lambda: x[:, :0], lambda: x[:1],
                  lambda: x.transpose(1, 2).contiguous().transpose(1, 2), lambda: x[:1].expand(x.shape),
                  lambda: x.to_sparse(), lambda: x.to("meta"), lambda: torch._neg_view(x), lambda: zero.conj().imag,
                  lambda: zero, lambda: fake(x), lambda: x.as_subclass(Sub), lambda: torch.nn.Parameter(x),
                  lambda: torch.nn.Parameter(x, requires_grad=False), lambda: x.clone().requires_grad_(),
                  lambda: x.clone().requires_grad_() * 2, lambda: x.clone().requires_grad_().detach(),
                  lambda: x.numpy(), lambda: x.tolist(), lambda: None, lambda: torch.nested.nested_tensor([x[0]]),
                  lambda: x.to(torch.float8_e4m3fn), lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
                  lambda: x.contiguous(memory_format=torch.channels_last))
        found += [(name, with_memory(make)) for make in makers]
    return found


@contextlib.contextmanager
def default_device(name):
    with torch.device(name):
        yield


def scopes():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return {
        "no_grad": torch.no_grad, "enable_grad": torch.enable_grad, "inference": torch.inference_mode,
        "meta by default": lambda: default_device("meta"), "functions": Functions, "dispatches": Dispatches}


def in_scopes():
    """Outcomes of a call that is known, on tensors with and without gradients, in each scope."""
    for name, scope in scopes().items():
        for q in (Q, Q.clone().requires_grad_()):
            call = lambda q=q, scope=scope: cases.outcome(within, scope, attune.attention, q, K, V)
            yield f"{name} {q.requires_grad}", [call(), call(), call()]
    yield "transforms", [
        cases.outcome(lambda: torch.func.vmap(lambda x: attune.attention(x, x, x))(torch.ones(3, 1, 4, 2, 16))),
        cases.outcome(lambda: torch.func.grad(lambda x: attune.attention(x, K, V).sum())(Q)),
        cases.outcome(lambda: torch.func.functionalize(lambda x: attune.attention(x, K, V))(Q))]


def within(scope, call, *arguments):
    with scope():
        result = call(*arguments)
    return result.detach()


def outcomes():
    tensors = {**TENSORS}
    found = {"scalars": cases.wrong_scalars(Q, K, V), "tensors": cases.wrong_tensors(tensors, variants())}
    with torch.no_grad():
        found["tensors without gradients"] = cases.wrong_tensors(tensors, variants())
        found["runs"] = cases.runs(tensors, [(name, x) for name, x in variants() if name != "out" and x is not None])
    found["tensors as numbers"] = [cases.outcome(attune.attention, Q, K, V, **{name: torch.tensor(number)})
                                   for name in ("scale", "softcap", "q_scale") for number in (0.5, 0.5, 0.9, 0.5)]
    for name, choices in cases.features(lambda array: torch.from_numpy(array.copy())).items():
        call = lambda choices=choices: cases.outcome(attune.attention, Q, K, V, **choices)
        found[name] = [call() for _ in range(3)]
        for keyword, value in choices.items():
            if isinstance(value, torch.Tensor):
                for wrong in (value[..., :1], value[None], value.double(), value.to("meta"),
                              value.float().clone().requires_grad_(), value.to_sparse()):
                    found[name] += [cases.outcome(attune.attention, Q, K, V, **{**choices, keyword: wrong}), call()]
    found.update(in_scopes())
    return found


def module_hits():
    return module.counters()["hits"]


class QuickTorchTest(unittest.TestCase):
    def test_known_calls_run_in_the_module(self):
        for name, choices in cases.features(lambda array: torch.from_numpy(array.copy())).items():
            with self.subTest(name):
                first = attune.attention(Q, K, V, **choices)
                before = module.counters()
                for _ in range(3):
                    got = attune.attention(Q.clone(), K, v=V.clone(), **choices)
                    self.assertEqual(cases.digest(got), cases.digest(first))
                self.assertEqual(module.counters()["hits"] - before["hits"], 3)

    def test_one_tensor_in_several_places(self):
        for given in ((Q, K, V), (Q, K, K), (Q, K.clone(), V), (K, K, K), (Q, Q, Q), (K, V, V)):
            want = [attune.attention(*given) for _ in range(2)][0]
            before = module.counters()
            self.assertTrue(torch.equal(attune.attention(*given), want))
            self.assertEqual(module.counters()["hits"] - before["hits"], 1)

    def test_a_first_call_under_autocast(self):
        """PyTorch's answers about tensors there decide nothing for later calls."""
        code = (
            "import torch, attune; from attune.core.library import module; q = torch.zeros(1, 4, 2, 32, "
            "dtype=torch.bfloat16)\n"
            "with torch.autocast('cpu', torch.bfloat16):\n    [attune.attention(q, q, q) for _ in range(3)]\n"
            "[attune.attention(q, q, q) for _ in range(3)]; print(module.counters()['hits'])")
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((result.stdout.strip(), result.returncode), ("4", 0), result.stderr)

    def test_heads_first(self):
        """Known calls give what the first one did, in the same strides, whatever axes have one entry."""
        for shape, shape_kv in ((Q.shape, K.shape), ((1, 5, 1, 16), (1, 7, 1, 16)), ((2, 1, 4, 16), (2, 7, 2, 16)),
                                ((0, 5, 4, 16), (0, 7, 2, 16))):
            q, k, v = (torch.from_numpy(cases.values(name, of)).transpose(1, 2)
                       for name, of in zip("qkv", (shape, shape_kv, shape_kv)))
            for entry, turned in ((attune.ops.attention.attend_heads_first, True),
                                  (attune.ops.attention.attend_from_heads_first, False)):
                want = attune.attention(*(x.transpose(1, 2) for x in (q, k, v)), mask="causal_bottom_right")
                want = want.transpose(1, 2) if turned else want
                for turn in range(3):
                    before = module.counters()["hits"]
                    got = entry(q, k, v, "causal_bottom_right", scale=0.25)
                    self.assertTrue(torch.equal(got, want))
                    self.assertEqual((got.shape, module.counters()["hits"] - before), (want.shape, int(turn > 0)))
                    if all(extent > 1 for extent in shape):
                        self.assertEqual(got.stride(), want.stride())

    def test_adapters_take_few_steps(self):
        """Calls of functions in Python that a known call makes: what it costs the host is mostly these."""
        import attune.flash, attune.sdpa, attune.torch
        from attune.transformers.attention import attention_forward
        heads_first, module = [x.transpose(1, 2) for x in (Q, K, V)], torch.nn.Module()
        op, rule = torch.ops.attune.attention.default, {"is_causal": False, "scaling": 0.25}
        for name, call, most in (("attention", lambda: attune.attention(Q, K, V), 1), ("op", lambda: op(Q, K, V), 1),
                                 ("sdpa",
                                  lambda: attune.sdpa.scaled_dot_product_attention(*heads_first, enable_gqa=True),
                                  3), ("flash", lambda: attune.flash.flash_attn_func(Q, K, V), 3),
                                 ("transformers", lambda: attention_forward(module, *heads_first, None, **rule), 3)):
            call(), call()
            frames, before = [], module_hits()
            sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_name) if event == "call" else None)
            try:
                call()
            finally:
                sys.setprofile(None)
            with self.subTest(name):
                self.assertEqual(module_hits() - before, 1)
                self.assertLessEqual(len(frames) - 1, most, frames)  # without the lambda

    def test_dtypes(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            q, k, v = (x.to(dtype) for x in (Q, K, V))
            first = attune.attention(q, k, v)
            before = module.counters()["hits"]
            got, parameter = attune.attention(q, k, v), attune.attention(torch.nn.Parameter(q, requires_grad=False), k,
                                                                         v)
            self.assertEqual((got.dtype, type(got), type(parameter), got.stride()),
                             (dtype, torch.Tensor, torch.Tensor, first.stride()))
            self.assertTrue(torch.equal(got, first) and torch.equal(parameter, first))
            self.assertGreater(module.counters()["hits"], before)

    def test_outcomes_equal_those_of_the_python_path(self):
        known, checked = cases.of_children(__file__, "-W", "ignore")
        self.assertEqual(known.keys(), checked.keys())
        for name, found in known.items():
            for i, (ours, theirs) in enumerate(zip(found, checked[name])):
                self.assertEqual(ours, theirs, f"{name}, outcome {i}")
        self.assertGreater(sum("Error" in text for text in known["tensors"]), 50)

    def test_references(self):
        plan = attune.Context("cpu:1", store="").plan(cases.PROBLEM)
        out, bias = TENSORS["out"], torch.zeros(4, 5, 7)
        for call in (lambda: attune.attention(Q, K, V, return_lse=True), lambda: attune.attention(Q, K, V, bias=bias),
                     lambda: plan.run(Q, K, V, out), lambda: attune.attention(Q, K, V, out=out),
                     plan.launcher(Q, K, V, out)):
            call(), call()
            gc.collect()
            counts = [sys.getrefcount(x) for x in (Q, K, V, out, bias, torch.Tensor)]
            for _ in range(500):
                call()
            for x, count in zip((Q, K, V, out, bias, torch.Tensor), counts):
                self.assertLess(abs(sys.getrefcount(x) - count), 20)

    def test_results_own_their_memory(self):
        results = [attune.attention(Q, K, V) for _ in range(3)]
        self.assertEqual(len({x.data_ptr() for x in results}), 3)
        self.assertEqual({(x.untyped_storage().nbytes(), x.requires_grad, x._base)
                          for x in results}, {(Q.numel() * 4, False, None)})
        results[0].resize_(0)  # as with any PyTorch tensor


if __name__ == "__main__":
    folder = cases.begin(outcomes)
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        print("SKIP: PyTorch is older than 2.10")
        sys.exit(77)
    unittest.main()
