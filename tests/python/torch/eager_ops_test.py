#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.attune.attention in eager mode on PyTorch's CPU tensors. Known calls run in the C module. A scope that can
see or change calls of ops (modes, autocast, tracing) still works around a known call. Skips aloud (status 77) without
PyTorch, the CPU target or the module, or if PyTorch makes no guards."""
import sys
import unittest

import attune

try:
    import torch
except ImportError:
    print("SKIP: there is no PyTorch here")
    sys.exit(77)

import attune.torch
import quick_cases as cases
from attune.core.library import module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Q, K, V = (torch.from_numpy(cases.values(name)) for name in "qkv")
OP = torch.ops.attune.attention.default
FEATURES = ("bias", "relative_bias", "alibi_slopes", "mask_tensor", "key_lengths", "prefix", "sinks")


def call(q=Q, k=K, v=V, **choices):
    return OP(q, k, v, **{"spec": "mask=causal_bottom_right", **choices})


def hits_of(run):
    before = module.counters()["hits"]
    run()
    return module.counters()["hits"] - before


class Seen(TorchFunctionMode):
    """Records the names of called functions."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class SeenBelow(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class EagerOpsTest(unittest.TestCase):
    def setUp(self):
        self.want = [call() for _ in range(3)][0]  # known from here on

    def assertSame(self, found, want):
        for ours, theirs in zip(found, want, strict=True):
            self.assertEqual((ours.shape, ours.stride(), ours.dtype, ours.is_contiguous()),
                             (theirs.shape, theirs.stride(), theirs.dtype, True))
            self.assertTrue(torch.equal(ours, theirs))

    def test_known_calls_run_in_the_module(self):
        for name, choices in cases.features(lambda array: torch.from_numpy(array.copy())).items():
            given = {feature: choices[feature] for feature in (*FEATURES, "scale") if feature in choices}
            if "documents" in choices:
                given["documents_q"], given["documents_kv"] = choices["documents"]
            words = {
                word: choices[word]
                for word in ("mask", "window", "softcap", "chunk", "context") if word in choices}
            want = attune.attention(Q, K, V, **{**choices, "return_lse": True})
            for wants_lse in (True, False):
                run = lambda q=Q, given=given, words=words, lse=wants_lse: OP(q, K, v=V, spec=attune.torch.spec(
                    **words), return_lse=lse, **given)
                found = [run() for _ in range(2)]
                with self.subTest(name, lse=wants_lse):
                    self.assertEqual(hits_of(lambda run=run, found=found: found.append(run(Q.clone()))), 1)
                    for one in found:
                        self.assertSame(one, (want[0], want[1] if wants_lse else torch.empty(0)))

    def test_results_are_new(self):
        found = [call() for _ in range(3)] + [call(return_lse=False) for _ in range(3)]
        self.assertEqual(len({o.data_ptr() for o, _ in found}), 6)
        found[-1][1].resize_(4)  # as with any PyTorch tensor
        self.assertEqual(call(return_lse=False)[1].numel(), 0)

    def test_scopes_see_the_call(self):
        for scope in (Seen, SeenBelow):
            with scope() as seen:
                self.assertSame(call(), self.want)
            self.assertIn("attune.attention.default", seen.names)
        with torch.profiler.profile() as profile:
            call()
        self.assertIn("attune::attention", [event.key for event in profile.key_averages()])
        self.assertEqual(hits_of(call), 1)

    def test_traces_have_the_op(self):
        for graph in (torch.jit.trace(lambda q: call(q)[0], Q, check_trace=False).graph,
                      torch.fx.experimental.proxy_tensor.make_fx(lambda q: call(q)[0])(Q).graph):
            self.assertIn("attune", str(graph))
        self.assertEqual(hits_of(call), 1)

    def test_a_call_that_is_traced_first_does_not_become_known(self):
        q = torch.zeros(3, 5, 4, 16)
        run = lambda q: OP(q, q, q)[0]
        torch.jit.trace(run, q, check_trace=False)
        self.assertIn("attune", str(torch.jit.trace(run, q, check_trace=False).graph))

    def test_subclasses_and_other_special_tensors(self):
        self.assertIsNotNone(call(Q.clone().requires_grad_())[0].grad_fn)
        with torch.no_grad():
            for _ in range(3):
                self.assertSame(call(Q.clone().requires_grad_()), self.want)
        self.assertIsNotNone(call(Q.clone().requires_grad_())[0].grad_fn)
        for transform in (torch.func.vmap(lambda q: call(q)[0]), torch.func.grad(lambda q: call(q)[0].sum())):
            with self.assertRaisesRegex(RuntimeError, "torch.func transform"):
                transform(Q[None] if "vmap" in repr(transform) else Q)
        negative = torch._neg_view(Q)
        self.assertSame(call(negative), call(-Q))
        self.assertSame(call(negative), call(negative.resolve_neg()))

    def test_autocast(self):
        want = call(*(x.bfloat16() for x in (Q, K, V)))
        with torch.autocast("cpu", torch.bfloat16):
            for _ in range(3):
                self.assertSame(call(), want)
        self.assertSame(call(), self.want)

    def test_inference_mode(self):
        with torch.inference_mode():
            for _ in range(2):
                self.assertSame(call(), self.want)
            self.assertEqual(hits_of(call), 1)
            self.assertTrue(call()[0].is_inference())
        self.assertEqual(hits_of(call), 1)

    def test_wrong_calls_raise_the_dispatchers_errors(self):
        for wrong in ({"nothing": 1}, {"spec": 3}, {"spec": "mask=causal_top_left,unknown=1"}, {"scale": "x"}, {
                "k": Q[0]}, {"q": Q.double()}, {"q": None}):
            with self.subTest(wrong), self.assertRaises(Exception) as short:
                call(**wrong)
            with self.subTest(wrong), self.assertRaises(type(short.exception)) as long:
                self.assertEqual(OP._op.__module__, module.__name__)
                with Seen():
                    call(**wrong)
            self.assertEqual(str(short.exception), str(long.exception))


if __name__ == "__main__":
    folder = cases.use_a_store()
    try:
        attune.Context("cpu")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__") or attune.ops.quick.guard_maker(torch) is None:
        print("SKIP: PyTorch is another one")
        sys.exit(77)
    unittest.main()
