#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.torch.activate(): runs PyTorch's operators of flash attention on attune. Without a GPU the tests call the
kernels directly on CPU tensors, with stand-ins for PyTorch's own kernels. torch_ops_cuda_test.py runs models. Skips
aloud (status 77) without PyTorch or the CPU target."""
import logging
import os
import unittest
from unittest import mock

from skips import skip, torch
import attune
import published_grids as grids

HAS_REGISTRY = hasattr(torch.nn.attention, "register_flash_attention_impl") and hasattr(torch.library, "get_kernel")


def draw(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


class FlashRegistryTest(unittest.TestCase):
    def setUp(self):
        import attune.torch
        from attune.torch import flash_registry as _flash_registry
        self.registry = _flash_registry
        self.registry._forget()
        self.original = mock.Mock(return_value="PyTorch's own")
        self.q, self.k, self.v = draw(2, 4, 33, 64), draw(2, 4, 33, 64), draw(2, 4, 33, 64)

    @unittest.skipUnless(HAS_REGISTRY, "this PyTorch has no registry")
    def test_importing_lists_it_and_activates_nothing(self):
        self.assertIn("attune", torch.nn.attention.list_flash_attention_impls())
        self.assertIsNone(torch.nn.attention.current_flash_attention_impl())

    @unittest.skipUnless(HAS_REGISTRY, "this PyTorch has no registry")
    def test_kernels_are_replaced_and_put_back(self):
        """Runs if PyTorch was built for CUDA, also without a GPU."""
        ops = ("_flash_attention_forward", "_scaled_dot_product_flash_attention", "_flash_attention_backward",
               "_scaled_dot_product_flash_attention_backward")
        if not all(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{op}", "CUDA") for op in ops):
            self.skipTest("this PyTorch has no CUDA kernels")
        described = lambda: [torch._C._dispatch_dump(f"aten::{op}") for op in ops]
        before = described()
        attune.torch.activate()
        try:
            self.assertEqual(torch.nn.attention.current_flash_attention_impl(), "attune")
            self.assertTrue(
                all("flash_registry.py" in text or "_handle" in text or text != old
                    for text, old in zip(described(), before)))
        finally:
            attune.torch.restore()
        self.assertIsNone(torch.nn.attention.current_flash_attention_impl())
        self.assertEqual(described(), before)
        attune.torch.restore()  # nothing to restore

    def test_a_pytorch_without_it_is_refused(self):
        with mock.patch.object(torch.nn, "attention", object()), self.assertRaisesRegex(
                RuntimeError, "PyTorch .* has no registry .*attune.sdpa"):
            attune.torch.activate()
        if HAS_REGISTRY:
            with mock.patch.object(torch.library, "get_kernel"):
                del torch.library.get_kernel
                with self.assertRaisesRegex(RuntimeError, "has no torch.library.get_kernel"):
                    attune.torch.activate()

    @unittest.skipUnless(HAS_REGISTRY, "this PyTorch has no registry")
    def test_activate_warns_without_a_gpu_and_reports_its_state(self):
        import warnings
        registry = mock.Mock()
        for there in (False, True):
            with mock.patch.object(self.registry, "_registry", return_value=registry), \
                    mock.patch.object(torch.cuda, "is_available", return_value=there), \
                    warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                attune.torch.activate()
            self.assertEqual(["no effect here: PyTorch finds no CUDA device" in str(one.message) for one in caught],
                             [] if there else [True])
        self.assertFalse(attune.torch.active())
        with mock.patch.object(torch.nn.attention, "current_flash_attention_impl", return_value="attune"):
            self.assertTrue(attune.torch.active())

    def test_calls_taken_and_left_are_counted(self):
        run = self.registry.sdpa_kernel(self.original)
        run(self.q, self.k, self.v)
        run(self.q, self.k, self.v, 0.0, True)
        run(self.q, self.k, self.v, 0.5)
        name = "_scaled_dot_product_flash_attention"
        self.assertEqual(attune.torch.calls(), {"taken": {name: 2}, "left": {name: {"dropout_p is not 0": 1}}})
        self.registry._forget()
        self.assertEqual(attune.torch.calls(), {"taken": {}, "left": {}})

    def test_scaled_dot_product(self):
        run = self.registry.sdpa_kernel(self.original)
        for causal in (False, True):
            for given in ((self.q, self.k, self.v), [
                    x.transpose(1, 2).contiguous().transpose(1, 2) for x in (self.q, self.k, self.v)]):
                found = run(*given, 0.0, causal, False, scale=0.2)
                o, lse, cum_q, cum_k, max_q, max_k, state, offset, mask = found
                want, want_lse = grids.reference(*(x.transpose(1, 2) for x in given),
                                                 grids.visible(33, 33, "top_left" if causal else None), scale=0.2)
                self.assertLess((o.transpose(1, 2).double() - want).abs().max().item(), 2e-2)
                self.assertLess((lse.double() - want_lse).abs().max().item(), 1e-2)
                with torch.device("meta"):
                    fake = torch.ops.aten._scaled_dot_product_flash_attention(*(x.to("meta") for x in given), 0.0,
                                                                              causal, False, scale=0.2)
                for index in (0, 1, 6, 7, 8):
                    self.assertEqual((found[index].shape, found[index].stride(), found[index].dtype),
                                     (fake[index].shape, fake[index].stride(), fake[index].dtype))
                self.assertEqual((cum_q, cum_k, max_q, max_k), (None, None, 33, 33))
                self.assertEqual((state.tolist(), offset.item(), mask.numel()), ([0, 0], 0, 0))
        self.original.assert_not_called()

    def test_forward(self):
        run = self.registry.forward_kernel(self.original)
        q, k, v = draw(2, 33, 4, 64), draw(2, 50, 2, 64), draw(2, 50, 2, 64)
        slopes, lengths = torch.rand(4), torch.tensor([20, 50], dtype=torch.int32)
        o, lse, state, offset, mask = run(q, k, v, None, None, 33, 50, 0.0, True, False, window_size_left=9,
                                          window_size_right=-1, alibi_slopes=slopes, num_splits=None)
        want, want_lse = grids.reference(q, k, v, grids.visible(33, 50, "bottom_right", (9, None)), alibi=slopes)
        self.assertLess((o.double() - want).abs().max().item(), 2e-2)
        self.assertLess((lse.double() - want_lse).abs().max().item(), 1e-2)
        o = run(q, k, v, None, None, 33, 50, 0.0, False, False, seqused_k=lengths)[0]
        want = grids.reference(q, k, v, (torch.arange(50) < lengths[:, None])[:, None, None])[0]
        self.assertLess((o.double() - want).abs().max().item(), 2e-2)
        self.original.assert_not_called()

    def test_what_attune_refuses_goes_to_pytorch(self):
        sdpa, forward = self.registry.sdpa_kernel(self.original), self.registry.forward_kernel(self.original)
        q, k, v = self.q, self.k, self.v
        leaf = q.clone().requires_grad_()
        causal_lengths = torch.tensor([20, 33], dtype=torch.int32)
        rows = torch.tensor([0, 33], dtype=torch.int32)
        backward = self.registry.sdpa_backward_kernel(self.original)
        turned = [x.transpose(1, 2) for x in (q, k, v)]
        state = lambda: (None, None, 33, 33, 0.5, False, None, None)
        cases = (("an input requires a gradient, and PyTorch's backward does not get alibi_slopes", lambda: forward(
            leaf.transpose(1, 2), *turned[1:], None, None, 33, 33, 0.0, False, False, alibi_slopes=torch.rand(4))),
                 ("dropout_p is not 0", lambda: backward(q, q, k, v, q, torch.zeros(2, 4, 33), *state())),
                 ("dropout_p is not 0", lambda: sdpa(q, k, v, 0.1)), ("return_debug_mask is True",
                                                                      lambda: sdpa(q, k, v, 0.0, False, True)),
                 ("q is float64; must be", lambda: sdpa(q.double(), k.double(), v.double())),
                 ("k is fp16 and q is bf16",
                  lambda: sdpa(q, k.half(), v)), ("cum_seq_q is given",
                                                  lambda: forward(q, k, v, rows, rows, 33, 33, 0.0, False, False)),
                 ("seqused_k is given with a causal mask or a window",
                  lambda: forward(q, k, v, None, None, 4, 4, 0.0, True, False, seqused_k=causal_lengths)),
                 ("block_table is given",
                  lambda: forward(q, k, v, None, None, 4, 4, 0.0, False, False, block_table=rows)))
        for reason, call in cases:
            with self.subTest(reason=reason), self.assertLogs("attune", logging.INFO) as log:
                self.assertEqual([call(), call()], ["PyTorch's own"] * 2)
                self.assertEqual(len(log.output), 1)  # said once
                self.assertIn(reason, log.output[0])

    def test_backward(self):
        """Calls forward and backward of one operator directly, as autograd does."""
        registry = self.registry
        for causal in (False, True):
            given = [draw(2, 33, 4, 64).transpose(1, 2), self.k, self.v]  # heads first, in two orders of memory
            o, lse = registry.sdpa_kernel(self.original)(*given, 0.0, causal, False, scale=0.2)[:2]
            dout = draw(2, 4, 33, 1).expand(2, 4, 33, 64)
            found = registry.sdpa_backward_kernel(self.original)(dout, *given, o, lse, None, None, 33, 33, 0.0, causal,
                                                                 None, None, scale=0.2)
            doubled = [x.double().requires_grad_() for x in given]
            want = torch.autograd.grad(
                torch.nn.functional.scaled_dot_product_attention(*doubled, is_causal=causal, scale=0.2), doubled,
                dout.double())
            for x, y, z in zip(found, want, given):
                self.assertLess(((x.double() - y).norm() / y.norm()).item(), 2e-2)
                self.assertEqual((x.stride(), x.dtype), (torch.empty_like(z).stride(), torch.bfloat16))
        q, k, v = draw(2, 33, 4, 64), draw(2, 50, 2, 64), draw(2, 50, 2, 64)
        o, lse = registry.forward_kernel(self.original)(q, k, v, None, None, 33, 50, 0.0, True, False,
                                                        window_size_left=9, window_size_right=-1)[:2]
        dout = draw(*o.shape)
        found = registry.backward_kernel(self.original)(dout, q, k, v, o, lse, None, None, 33, 50, 0.0, True, None,
                                                        None, window_size_left=9, window_size_right=-1)
        doubled = [x.double().requires_grad_() for x in (q, k, v)]
        want, _ = grids.reference(*doubled, grids.visible(33, 50, "bottom_right", (9, None)))
        for x, y in zip(found, torch.autograd.grad(want, doubled, dout.double())):
            self.assertLess(((x.double() - y).norm() / y.norm()).item(), 2e-2)
        self.original.assert_not_called()


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""
    try:
        attune.Context("cpu", store="").plan("dtype=bf16,head_dim=64,heads=4,seqlen=33")  # compiles
    except attune.Error as error:
        skip(f"no CPU target: {error}")
    unittest.main()
