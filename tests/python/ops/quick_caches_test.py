#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Known calls of attention_kvcache() and append_kv() in the C module must give the results of calls that Python checks,
whatever the tensors' contents and addresses. NumPy on the CPU, and PyTorch if installed (lists on a GPU:
quick_gpu_test.py). Skips aloud (status 77) without NumPy or the CPU target."""
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)

import attune
from attune.core.library import module

try:
    CONTEXT = attune.Context("cpu:1", store="")
except attune.Error as error:
    print(f"SKIP: {error}")
    sys.exit(77)

DRAW = np.random.default_rng(1)


def values(*shape):
    return DRAW.standard_normal(shape, dtype=np.float32)


def expected(q, k, v, sinks=None):
    """[batch, seqlen_q, heads, head_dim] over all keys, and lse, in float64."""
    group = q.shape[2] // k.shape[2]
    k, v = (np.repeat(x, group, 2).astype(np.float64) for x in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(np.float64), k) * q.shape[-1] ** -0.5
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))], -1)
    lse = np.log(np.exp(scores).sum(-1))
    weights = np.exp(scores - lse[..., None])[..., :k.shape[1]]
    return np.einsum("bhqk,bkhd->bqhd", weights, v), lse


class QuickCachesTest(unittest.TestCase):
    def hits(self, call, times):
        """How many of these calls ran in the module, after a first one that Python checks."""
        call()
        before = module.counters()["hits"]
        for _ in range(times):
            call()
        return module.counters()["hits"] - before

    def close(self, found, want):
        self.assertLess(np.abs(np.asarray(found, np.float64) - want).max(), 1e-5)

    def test_known_calls_follow_their_tensors(self):
        q, sinks, out = values(2, 3, 4, 32), values(4), np.empty((2, 3, 4, 32), np.float32)
        for choices in ({}, {"return_lse": True}, {"sinks": sinks}, {"out": out}, {"context": CONTEXT}):
            given = [(values(2, 40, 2, 32), values(2, 40, 2, 32)) for _ in range(3)]
            self.assertEqual(self.hits(lambda: attune.attention_kvcache(q, *given[0], **choices), 2), 2, choices)
            for k, v in given:
                q[:] = values(*q.shape)
                found = attune.attention_kvcache(q, k, v, **choices)
                want_o, want_lse = expected(q, k, v, choices.get("sinks"))
                o, lse = found if "return_lse" in choices else (found, want_lse)
                self.close(o, want_o)
                self.close(lse, want_lse)
                self.assertEqual(found is out, "out" in choices)

    def test_calls_with_other_arguments_are_distinguished(self):
        q, k, v = values(1, 2, 2, 32), values(1, 24, 1, 32), values(1, 24, 1, 32)
        for _ in range(2):
            self.close(attune.attention_kvcache(q, k, v, context=CONTEXT), expected(q, k, v)[0])
            self.close(attune.attention_kvcache(q, k, v, scale=2 * 32**-0.5, context=CONTEXT), expected(2 * q, k, v)[0])
            self.close(attune.attention(q, k, v, context=CONTEXT),
                       expected(q, k, v)[0])  # of the same arguments, in the same table
            last = attune.attention_kvcache(q, k, v, is_causal=True, context=CONTEXT)
            self.close(last[:, :1], expected(q[:, :1], k[:, :23], v[:, :23])[0])

    def test_values_that_are_columns_of_keys(self):
        q = values(1, 1, 16, 576)
        latent = values(1, 64, 1, 576)
        apart = np.ascontiguousarray(np.repeat(values(1, 64, 1, 576), 1, 0))
        for _ in range(3):  # equal shapes and strides; only the addresses differ
            self.close(attune.attention_kvcache(q, latent, latent[..., :512]),
                       expected(q, latent, latent[..., :512])[0])
            self.close(attune.attention_kvcache(q, latent, apart[..., :512]), expected(q, latent, apart[..., :512])[0])

    def test_values_that_are_the_keys(self):
        q, k = values(1, 2, 2, 32), values(1, 24, 1, 32)
        self.assertEqual(self.hits(lambda: attune.attention_kvcache(q, k, k), 2), 2)
        self.close(attune.attention_kvcache(q, k, k), expected(q, k, k)[0])

    def test_one_key_whose_columns_are_values(self):
        """The stride of a single row may be anything, and was another for each of them."""
        q, memory = values(1, 1, 16, 64), values(70)
        for stride in (64, 8):
            k = np.lib.stride_tricks.as_strided(memory, (1, 1, 1, 64), (256, 4 * stride, 256, 4))
            self.close(attune.attention_kvcache(q, k, k[..., :32]), expected(q, k, k[..., :32])[0])

    def test_mask_together_with_is_causal(self):
        q, k = values(1, 2, 2, 32), values(1, 24, 1, 32)
        for mask in ("causal_top_left", "causal_bottom_right", "none of these"):
            with self.assertRaisesRegex(ValueError, f"mask is '{mask}' and is_causal is True; give one of the two"):
                attune.attention_kvcache(q, k, k, mask=mask, is_causal=True)

    def test_known_calls_dropped_during_a_call(self):
        """Contexts that reload while a call is under way do not keep the plan that it runs."""
        from unittest import mock
        context = attune.Context("cpu:1", store="")
        q, k = values(1, 2, 2, 32), values(1, 40, 1, 32)
        enqueue = attune.Plan.enqueue

        def reloading(plan, *arguments):
            context.reload()
            return enqueue(plan, *arguments)

        for call in (lambda: attune.attention_kvcache(q, k, k, context=context),
                     lambda: attune.attention(q, k, k, context=context)):
            with mock.patch.object(attune.Plan, "enqueue", reloading):
                call()
            before = module.counters()["hits"]
            call()
            self.assertEqual(module.counters()["hits"], before)
            call()
            self.assertEqual(module.counters()["hits"], before + 1)

    def test_memory_of_known_calls_is_checked(self):
        q, both = values(1, 2, 2, 32), values(1, 48, 1, 32)
        k, v, out = both[:, :24], values(1, 24, 1, 32), np.empty((1, 2, 2, 32), np.float32)
        self.assertEqual(self.hits(lambda: attune.attention_kvcache(q, k, v, out=out), 2), 2)
        with self.assertRaisesRegex(ValueError, "out and q overlap in memory"):
            attune.attention_kvcache(q, k, v, out=q)
        out.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "out is read-only"):
            attune.attention_kvcache(q, k, v, out=out)
        rows = values(1, 2, 1, 32)
        lengths = np.array([5], np.int32)
        caches = np.zeros((2, 24, 1, 32), np.float32)
        self.assertEqual(self.hits(lambda: attune.append_kv(rows, rows, caches[:1], caches[1:], lengths), 2), 2)
        with self.assertRaisesRegex(ValueError, "v_cache and k_cache overlap in memory"):
            attune.append_kv(rows, rows, caches[:1], caches[:1], lengths)

    def test_lengths_on_a_cpu_are_checked_in_each_call(self):
        q, k, v, lengths = values(1, 1, 2, 32), values(1, 24, 1, 32), values(1, 24, 1, 32), np.array([9], np.int32)
        for _ in range(3):
            self.close(attune.attention_kvcache(q, k, v, lengths), expected(q, k[:, :9], v[:, :9])[0])
        lengths[0] = 25
        with self.assertRaisesRegex(ValueError, "kv_lengths"):
            attune.attention_kvcache(q, k, v, lengths)

    def test_known_appends_write_where_lists_say(self):
        caches = np.zeros((6, 2, 8, 2, 32), np.float32)  # pages of K and of V in turn
        k_cache, v_cache = caches[:, 0], caches[:, 1]
        table = np.array([[4, 1, 3]], np.int32)
        lengths = np.zeros(1, np.int32)
        wanted = np.zeros_like(caches)

        def step(length):
            k, v = values(1, 1, 2, 32), values(1, 1, 2, 32)
            lengths[0] = length
            page, at = table[0, (length - 1) // 8], (length - 1) % 8
            wanted[page, 0, at], wanted[page, 1, at] = k[0, 0], v[0, 0]
            return attune.append_kv(k, v, k_cache, v_cache, lengths, page_table=table)

        step(1)
        before = module.counters()["hits"]
        for length in (2, 8, 9, 17, 24):
            self.assertIsNone(step(length))
            np.testing.assert_array_equal(caches, wanted)
        self.assertEqual(module.counters()["hits"] - before, 5)

    def test_known_appends_turn_rows_of_q(self):
        cos, sin = values(32, 16), values(32, 16)
        k_cache, v_cache, k, v = np.zeros((1, 32, 1, 32), np.float32), np.zeros((1, 32, 1, 32), np.float32), values(
            1, 1, 1, 32), values(1, 1, 1, 32)
        lengths = np.array([1], np.int32)
        for into in (None, values(1, 1, 2, 32)):
            for length in (1, 7, 32):
                q, lengths[0] = values(1, 1, 2, 32), length
                found = attune.append_kv(k, v, k_cache, v_cache, lengths, cos=cos, sin=sin, q=q, q_out=into)
                c, s, (first, second) = cos[length - 1], sin[length - 1], np.split(q[0, 0], 2, -1)
                self.close(found[0, 0], np.concatenate([first * c - second * s, first * s + second * c], -1))
                self.assertEqual(found is into, into is not None)


class TorchTest(unittest.TestCase):
    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("there is no PyTorch here")
        self.torch = torch

    def test_gradients_modes_and_versions(self):
        torch = self.torch
        q, k, v = torch.randn(1, 1, 2, 32), torch.randn(1, 24, 1, 32), torch.randn(1, 24, 1, 32)
        want = attune.attention_kvcache(q, k, v)
        for _ in range(2):
            self.assertTrue(torch.equal(attune.attention_kvcache(q, k, v), want))
            with self.assertRaisesRegex(ValueError, "k_cache requires a gradient"):
                attune.attention_kvcache(q, k.clone().requires_grad_(), v)
        rows, lengths = torch.randn(1, 1, 1, 32), torch.tensor([4], dtype=torch.int32)
        for step in range(3):  # autograd detects writes to a saved cache
            version = k._version
            attune.append_kv(rows, rows, k, v, lengths)
            self.assertGreater(k._version, version, step)
        out = torch.empty_like(q)
        for step in range(3):
            version = out._version
            attune.attention_kvcache(q, k, v, out=out)
            self.assertGreater(out._version, version, step)


if __name__ == "__main__":
    unittest.main()
