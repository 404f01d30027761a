#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention over lists of keys against float64: attention_backward() with NumPy and PyTorch, and PyTorch's
autograd of attention_kvcache(), on the device named by the first argument. Plain and latent keys, lists of all heads
and of each head, counts, entries that name no key, keys that are named twice, and what is refused. Skips aloud (status
77) without NumPy, or without PyTorch and that device."""
import os
import unittest

import attune
from caches import checking_context, ints, numbers, run_tests, tensor
from library_and_device import DEVICE, np, torch

LIMIT = 1e-2 if DEVICE == "cuda" else 1e-4
ODD_DIMS = (80, 48) if DEVICE == "cuda" else (72, 40)  # over caches, kernels for GPUs take multiples of 16
# batch, rows, keys, heads, heads_kv, head_dim, head_dim_v (below 0: v is in k), length of lists, by head
CASES = ((2, 3, 50, 8, 2, 64, 64, 40, False), (1, 5, 70, 7, 1, 128, 80, 100, False),
         (3, 2, 40, 12, 3, *ODD_DIMS, 33, True), (2, 2, 90, 20, 1, 576, -512, 70, False),
         (1, 3, 200, 70, 1, 576, -512, 130, False), (2, 1, 30, 4, 4, 64, -48, 1, True),
         (1, 2, 60, 6, 2, 512, 512, 65, True), (1, 4, 20, 2, 2, 16, 16, 20, False))


class Case:
    """Random operands and lists of one of CASES, with gradients in float64."""

    def __init__(self, seed, batch, rows, keys, heads, heads_kv, d, dv, length, by_head):
        self.random = random = np.random.default_rng(seed)
        draw = lambda *shape: tensor(random.standard_normal(shape))
        self.in_k, dv = dv < 0, abs(dv)
        self.q, self.dout = draw(batch, rows, heads, d), draw(batch, rows, heads, dv)
        self.k = draw(batch, keys, heads_kv, d)
        self.v = self.k[..., :dv] if self.in_k else draw(batch, keys, heads_kv, dv)
        self.dlse = tensor(random.standard_normal((batch, heads, rows)))
        self.dlse = self.dlse if torch is None else self.dlse.float()
        lists = random.integers(-2, keys + 3, (batch, rows, heads_kv if by_head else 1, length))
        counts = random.integers(0, length + 1, (batch, rows))
        counts[0, 0], counts[-1, -1] = length, 0 if rows > 1 else length
        self.lists, self.counts = lists, counts
        self.given = dict(key_indices=ints(lists if by_head else lists[:, :, 0]), key_counts=ints(counts))

    def expected(self, dlse):
        """Returns dq, dk and dv in float64."""
        q, k, v, dout = (numbers(x) for x in (self.q, self.k, self.v, self.dout))
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        group, scale = q.shape[2] // k.shape[2], q.shape[3]**-0.5
        for b, row, head in np.ndindex(*q.shape[:3]):
            of = head // group
            own = self.lists[b, row, of % self.lists.shape[2], :self.counts[b, row]]
            own = own[(own >= 0) & (own < k.shape[1])]
            if not own.size:
                continue
            s = scale * k[b, own, of] @ q[b, row, head]
            p = np.exp(s - s.max())
            p /= p.sum()
            dp = v[b, own, of] @ dout[b, row, head]
            ds = scale * p * (dp - p @ dp + (0 if dlse is None else numbers(dlse)[b, head, row]))
            dq[b, row, head] = ds @ k[b, own, of]
            np.add.at(dk, (b, own, of), ds[:, None] * q[b, row, head])
            np.add.at(dv, (b, own, of), p[:, None] * dout[b, row, head])
        return dq, dk, dv

    def forward(self, **keywords):
        return attune.attention_kvcache(self.q, self.k, self.v, return_lse=True, **self.given, **keywords)


class KeyGradientsTest(unittest.TestCase):
    def compare(self, got, want):
        for name, one, other in zip(("dq", "dk", "dv"), got, want):
            if other is None:
                self.assertIsNone(one, name)
                continue
            size = np.sqrt(np.mean(other**2)) + 1e-9
            np.testing.assert_allclose(numbers(one), other, rtol=LIMIT, atol=LIMIT * 4 * size, err_msg=name)

    def test_by_hand(self):
        for seed, case in enumerate(CASES):
            with self.subTest(case=case):
                made = Case(seed, *case)
                o, lse = made.forward()
                dlse = made.dlse if seed % 2 else None
                found = attune.attention_backward(made.dout, made.q, made.k, made.v, o, lse, dlse=dlse, **made.given)
                dq, dk, dv = made.expected(dlse)
                if made.in_k:
                    dk[..., :dv.shape[3]] += dv
                self.compare(found, (dq, dk, None if made.in_k else dv))
                self.assertEqual([None if x is None else tuple(x.shape) for x in found],
                                 [tuple(made.q.shape), tuple(made.k.shape), None if made.in_k else tuple(made.v.shape)])

    def test_autograd(self):
        if torch is None:
            self.skipTest("NumPy has no autograd")
        for seed, case in enumerate(CASES):
            with self.subTest(case=case):
                made = Case(seed, *case)
                want = made.expected(made.dlse if seed % 2 else None)
                leaves = [x.detach().clone().requires_grad_() for x in (made.q, made.k, made.v)]
                q, k, v = leaves[0], leaves[1] * 1, leaves[2]
                if made.in_k:
                    v = k[..., :v.shape[3]]
                    want[1][..., :want[2].shape[3]] += want[2]
                o, lse = attune.attention_kvcache(q, k, v, return_lse=True, **made.given)
                if seed % 2:
                    torch.autograd.backward((o, lse), (made.dout, made.dlse))
                else:
                    o.backward(made.dout)
                self.compare([leaf.grad for leaf in leaves], (*want[:2], None if made.in_k else want[2]))

    def test_autograd_where_v_is_apart(self):
        """v has the memory of k, but autograd does not lead from v to k."""
        if torch is None:
            self.skipTest("NumPy has no autograd")
        made = Case(3, *CASES[3])
        dq, dk, dv = made.expected(None)
        for frozen in (False, True):
            k = made.k.clone()
            v = k[..., :512].detach().requires_grad_(not frozen)
            k = k.detach().requires_grad_()
            o = attune.attention_kvcache(made.q, k, v, **made.given)
            o.backward(made.dout)
            self.compare((k.grad, v.grad), (dk, None if frozen else dv))

    def test_out_strides_and_dtypes(self):
        made = Case(11, 2, 3, 50, 8, 2, 64, 64, 40, False)
        o, lse = made.forward()
        want = made.expected(None)
        turn = lambda x: (x.transpose(0, 2, 1, 3).copy() if torch is None else x.transpose(1, 2).contiguous()
                          ).swapaxes(1, 2)  # [batch, heads, rows, head_dim] in memory
        q, k, v, o, dout = (turn(x) for x in (made.q, made.k, made.v, o, made.dout))
        out = tuple(x * 0 + 7 for x in (q, k, v))
        found = attune.attention_backward(dout, q, k, v, o, lse, out=out, **made.given)
        self.assertTrue(all(one is other for one, other in zip(found, out)))
        self.compare(found, want)
        if torch is not None:
            half = [x.to(torch.bfloat16) for x in (dout, q, k, v, o)]
            for one, other in zip(attune.attention_backward(*half, lse, **made.given), want):
                size = np.sqrt(np.mean(other**2))
                np.testing.assert_allclose(numbers(one), other, rtol=0.05, atol=0.2 * size)

    def test_equal_bits(self):
        """Also for other numbers of threads of a CPU; and as right as without equal bits."""
        contexts = [None] * 5 if DEVICE == "cuda" else [attune.Context(f"cpu:{n}", store="") for n in (1, 3)]
        for seed, case in enumerate(((2, 90, 60, 8, 2, 64, 64, 40, False), (1, 50, 300, 70, 1, 576, -512, 130, False))):
            made = Case(seed, *case)
            o, lse = made.forward()
            found = [attune.attention_backward(made.dout, made.q, made.k, made.v, o, lse, deterministic=True,
                                               context=context, **made.given) for context in contexts]
            for others in zip(*found):
                for other in others[1:]:
                    if other is not None:
                        np.testing.assert_array_equal(numbers(others[0]), numbers(other))
            dq, dk, dv = made.expected(None)
            if made.in_k:
                dk[..., :dv.shape[3]] += dv
            self.compare(found[0], (dq, dk, None if made.in_k else dv))

    def test_equal_bits_in_rounds(self):
        if DEVICE != "cuda":
            self.skipTest("only kernels for GPUs run in rounds")
        made = Case(2, 2, 100, 3000, 128, 1, 576, -512, 2048, False)  # parts take 1.8 GiB, rounds 1 GiB
        o, lse = made.forward()
        found = [attune.attention_backward(made.dout, made.q, made.k, made.v, o, lse, deterministic=True, **made.given)
                 for _ in range(3)]
        for other in found[1:]:
            np.testing.assert_array_equal(numbers(found[0][1]), numbers(other[1]))

    def test_autograd_with_deterministic_algorithms(self):
        if torch is None:
            self.skipTest("NumPy has no autograd")
        made = Case(13, 1, 40, 60, 8, 2, 64, 64, 50, False)
        found = []
        torch.use_deterministic_algorithms(True)
        try:
            for _ in range(3):
                k = made.k.detach().clone().requires_grad_()
                attune.attention_kvcache(made.q, k, made.v, **made.given).backward(made.dout)
                found.append(numbers(k.grad))
        finally:
            torch.use_deterministic_algorithms(False)
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)

    def test_no_keys_and_no_rows(self):
        for rows, keys in ((2, 0), (0, 20), (2, 20)):
            made = Case(1, 2, max(rows, 1), max(keys, 1), 4, 2, 64, 64, 8, False)
            made.given["key_counts"] = ints(made.counts * 0)[:, :rows]
            made.given["key_indices"] = made.given["key_indices"][:, :rows]
            cut = dict(q=made.q[:, :rows], k=made.k[:, :keys], v=made.v[:, :keys], dout=made.dout[:, :rows])
            lse = numbers(made.dlse)[..., :rows] * 0 - np.inf
            lse = tensor(lse) if torch is None else tensor(lse).float()
            found = attune.attention_backward(cut["dout"], cut["q"], cut["k"], cut["v"], cut["dout"], lse,
                                              **made.given)
            for one, like in zip(found, "qkv"):
                self.assertEqual(tuple(one.shape), tuple(cut[like].shape))
                np.testing.assert_array_equal(numbers(one), 0)

    def test_checked_lists(self):
        made = Case(4, *CASES[0])
        o, lse = made.forward()
        strict = checking_context()
        with self.assertRaisesRegex(attune.Error, r"key_indices\[\d+\]\[0\]\[\d+\] is .*(be -1 to 49|each key once)"):
            attune.attention_backward(made.dout, made.q, made.k, made.v, o, lse, context=strict, **made.given)

    def test_refusals(self):
        made = Case(5, *CASES[0])
        o, lse = made.forward()
        indices, counts = made.given["key_indices"], made.given["key_counts"]
        for message, given in (
            ("key_counts is given without key_indices", dict(key_counts=counts)),
            ("must be 'qkv' and False", dict(made.given, gradients="q")),
            ("must be 'qkv' and False", dict(made.given, accumulate=True)),
            ("key_indices and mask are given", dict(made.given, mask="causal_bottom_right")),
            ("key_indices and softcap are given", dict(made.given, softcap=3.0)),
            ("key_indices and dropout_p are given", dict(made.given, dropout_p=0.5)),
            (r"key_indices has shape \(2, 2, 40\); must be \[2, 3\]", dict(key_indices=indices[:, :2])),
            ("must be int32", dict(key_indices=made.q[:, :, 0]))):
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                attune.attention_backward(made.dout, made.q, made.k, made.v, o, lse, **given)
        if torch is None:
            return
        q = made.q.clone().requires_grad_()
        for message, more in (("kv_lengths is given, and autograd records", dict(kv_lengths=counts[:, 0])),
                              ("softcap is given, and autograd records", dict(softcap=3.0)),
                              ("out is given, and autograd records", dict(out=o))):
            with self.assertRaisesRegex(ValueError, message):
                attune.attention_kvcache(q, made.k, made.v, **made.given, **more)
        with self.assertRaisesRegex(ValueError, "a slot for each batch entry of q"):
            attune.attention_kvcache(q, made.k[:1], made.v[:1], **made.given)
        o = attune.attention_kvcache(q, made.k, made.v, **made.given)
        gradient, = torch.autograd.grad(o.sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "once_differentiable|does not require grad"):
            gradient.sum().backward()


if __name__ == "__main__":
    os.environ.setdefault("ATTUNE_STORE", "")
    run_tests()
