#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.flash.halves: FlashAttention 2's forward and backward by themselves, beside autograd's gradients of
flash_attn_func() and flash_attn_varlen_func(), and joined over parts of the keys; on the device named by the first
argument. Skips aloud (status 77) without PyTorch and that device."""
import unittest

import attune.flash
from attune.flash import halves
from library_and_device import DEVICE, torch
from skips import skip

if torch is None:
    skip("name a device of PyTorch: cpu or cuda")
KIND = torch.float32 if DEVICE == "cpu" else torch.bfloat16
NEAR = dict(atol=2e-5, rtol=2e-5) if DEVICE == "cpu" else dict(atol=4e-2, rtol=4e-2)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, KIND)


def drawn(*batch, rows, keys):
    """Returns q, k, v and the gradient of out."""
    shapes = (rows, 4, 64), (keys, 2, 64), (keys, 2, 64), (rows, 4, 64)
    return [draw(*batch, *shape, seed=seed) for seed, shape in enumerate(shapes)]


def begins(*ends):
    return torch.tensor([0, *ends], dtype=torch.int32, device=DEVICE)


class HalvesTest(unittest.TestCase):
    def compare(self, found, wanted):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, **NEAR)

    def differentiated(self, function, operands, dout, *given, **choices):
        """Returns out, lse and the gradients that autograd computes."""
        learned = [x.clone().requires_grad_() for x in operands]
        out, lse, *_ = function(*learned, *given, return_attn_probs=True, **choices)
        return out.detach(), lse.detach(), torch.autograd.grad(out, learned, dout)

    def test_dense(self):
        q, k, v, dout = drawn(2, rows=9, keys=13)
        slopes = torch.rand(4, generator=torch.Generator().manual_seed(4)).to(DEVICE)
        for causal, window, softcap, slope in ((False, (-1, -1), 0.0, None), (True, (-1, -1), 5.0, None),
                                               (False, (3, 2), 0.0, None), (True, (4, -1), 0.0, slopes)):
            out, lse, gradients = self.differentiated(
                attune.flash.flash_attn_func, (q, k, v), dout, softmax_scale=0.2, causal=causal, window_size=window,
                softcap=softcap, alibi_slopes=slope)
            found, found_lse, probabilities, state = halves.forward(q, k, v, 0.0, 0.2, causal, *window, softcap, slope)
            self.compare((found, found_lse), (out, lse))
            self.assertEqual((probabilities.numel(), state.dtype, tuple(state.shape)), (0, torch.int64, (2,)))
            made = [torch.full_like(x, torch.nan) for x in (q, k, v)]
            self.assertIsNone(halves.backward(dout, q, k, v, out, lse, *made, 0.0, 0.2, causal, *window, softcap, slope,
                                              True, state))
            self.compare(made, gradients)
            alone = torch.full_like(k, torch.nan)
            halves.backward(dout, q, k, v, out, lse, None, alone, None, 0.0, 0.2, causal, *window, softcap, slope)
            self.compare([alone], gradients[1:2])

    def test_autograd_does_not_see_them(self):
        q, k, v = (draw(1, 5, 2, 64, seed=seed).requires_grad_() for seed in range(3))
        out, lse, _, _ = halves.forward(q, k, v, 0.0, None, True)
        self.assertFalse(out.requires_grad or lse.requires_grad)
        made = [torch.empty_like(x) for x in (q, k, v)]
        halves.backward(out, q, k, v, out, lse, *made, 0.0, None, True)
        self.assertFalse(any(x.requires_grad for x in made))

    def test_parts_of_the_keys(self):
        """Two devices of a ring have half of the keys each; the joined result is that of all keys."""
        q, k, v, dout = drawn(2, rows=8, keys=16)
        out, lse, gradients = self.differentiated(attune.flash.flash_attn_func, (q, k, v), dout)
        parts = [slice(0, 8), slice(8, 16)]
        states = [halves.forward(q, k[:, part], v[:, part], 0.0, None, False)[:2] for part in parts]
        joined, joined_lse = attune.flash.flash_attn_combine(
            torch.stack([x.float() for x, _ in states]), torch.stack([x.transpose(1, 2) for _, x in states]))
        self.compare((joined.to(KIND), joined_lse.transpose(1, 2)), (out, lse))
        dq = torch.zeros_like(q, dtype=torch.float32)
        for part in parts:
            made = [torch.empty_like(x) for x in (q, k[:, part], v[:, part])]
            halves.backward(dout, q, k[:, part], v[:, part], out, lse, *made, 0.0, None, False)
            dq += made[0]
            self.compare(made[1:], [x[:, part] for x in gradients[1:]])
        self.compare([dq.to(KIND)], gradients[:1])

    def test_dropout(self):
        q, k, v, dout = drawn(2, rows=9, keys=13)
        torch.manual_seed(5)
        out, lse, gradients = self.differentiated(attune.flash.flash_attn_func, (q, k, v), dout, 0.25)
        torch.manual_seed(5)
        found, found_lse, probabilities, state = halves.forward(q, k, v, 0.25, None, False)
        self.compare((found, found_lse), (out, lse))
        made = [torch.empty_like(x) for x in (q, k, v)]
        halves.backward(dout, q, k, v, found, found_lse, *made, 0.25, None, False, rng_state=state)
        self.compare(made, gradients)
        with self.assertRaisesRegex(ValueError, "attune keeps no probabilities"):
            probabilities + 1
        with self.assertRaisesRegex(ValueError, "rng_state is None; must be forward"):
            halves.backward(dout, q, k, v, found, found_lse, *made, 0.25, None, False)

    def test_end_to_end(self):
        q, k, v, dout = drawn(rows=20, keys=26)
        slopes = torch.rand(4, generator=torch.Generator().manual_seed(4)).to(DEVICE)
        one = begins(6, 7, 20)
        for cu_q, cu_k in ((one, one), (one, begins(9, 13, 26)), (begins(6, 7, 18), begins(9, 13, 24))):
            keys = int(cu_k[-1])
            for causal, window, slope in ((False, (-1, -1), None), (True, (-1, -1), slopes), (True, (4, -1), None)):
                with self.subTest(cu_k=cu_k.tolist(), causal=causal, window=window):
                    lists, rows = (cu_q, cu_k, 13, 13), int(cu_q[-1])
                    cut = (q[:rows], k[:keys], v[:keys])
                    out, lse, gradients = self.differentiated(
                        attune.flash.flash_attn_varlen_func, cut, dout[:rows], *lists, softmax_scale=0.2,
                        causal=causal, window_size=window, alibi_slopes=slope)
                    found, found_lse, _, _ = halves.varlen_forward(q, k, v, *lists, 0.0, 0.2, causal, *window, 0.0,
                                                                   slope)
                    self.compare((found[:rows], found_lse[:, :rows]), (out, lse))
                    made = [torch.full_like(x, torch.nan) for x in (q, k, v)]
                    halves.varlen_backward(dout, q, k, v, found, found_lse, *made, *lists, 0.0, 0.2, causal, *window,
                                           0.0, slope, True)
                    for x, want in zip(made, gradients):
                        self.compare([x[:want.shape[0]]], [want])
                        self.assertFalse(x[want.shape[0]:].any() if DEVICE == "cpu" else False)

    def test_refusals(self):
        x, ends = draw(6, 2, 64), begins(6)
        lse = torch.zeros(2, 6, device=DEVICE)
        with self.assertRaisesRegex(ValueError, "dropout_p is 0.5; must be 0.0 for sequences end to end"):
            halves.varlen_forward(x, x, x, ends, ends, 6, 6, 0.5, None, False)
        with self.assertRaisesRegex(ValueError, "dropout_p is 0.5; must be 0.0 for sequences end to end"):
            halves.varlen_backward(x, x, x, x, x, lse, x, x, x, ends, ends, 6, 6, 0.5, None, False)
        with self.assertRaisesRegex(ValueError, "leftpad_k is given; must be None"):
            halves.varlen_forward(x, x, x, ends, ends, 6, 6, 0.0, None, False, leftpad_k=ends)
        with self.assertRaisesRegex(ValueError, r"softmax_lse has shape \(1, 2, 3\)"):
            halves.backward(*[x[None]] * 5, lse[None, :, :3], *[x[None]] * 3, 0.0, None, False)


if __name__ == "__main__":
    unittest.main()
