# SPDX-License-Identifier: Apache-2.0
"""torch.profiler shows calls by attune's names, also calls that the C module would repeat without Python."""
import unittest

import torch
from torch.profiler import ProfilerActivity, profile

import attune
import attune.flash
import attune.sdpa
import attune.torch


def counted(run):
    """Returns how often each event of attune occurs."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return {event.key: event.count for event in seen.key_averages() if event.key.startswith("attune::")}


def rows(run):
    """Returns the names of attune's rows, in order. Fails if one of them lies inside another."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    found = [event for event in seen.events() if event.name.startswith("attune::")]
    for event in found:
        above = event.cpu_parent
        while above is not None:
            assert not above.name.startswith("attune::"), f"{event.name} lies inside {above.name}"
            above = above.cpu_parent
    return [event.name for event in sorted(found, key=lambda event: event.time_range.start)]


class ProfilerTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.q = torch.randn(1, 40, 4, 32)
        self.k, self.v = torch.randn(1, 40, 2, 32), torch.randn(1, 40, 2, 32)

    def attend(self):
        return attune.attention(self.q, self.k, self.v, "causal")

    def test_calls_are_named(self):
        expected = self.attend()
        self.attend()  # from here on the C module repeats the call
        results = []
        self.assertEqual(counted(lambda: results.extend(self.attend() for _ in range(5))), {"attune::attention": 5})
        for result in results:
            torch.testing.assert_close(result, expected)
        self.assertEqual(counted(lambda: None), {})
        torch.testing.assert_close(self.attend(), expected)

    def test_calls_over_caches_are_named(self):
        cache, lengths = torch.randn(1, 64, 2, 32), torch.tensor([40], dtype=torch.int32)

        def step():
            attune.append_kv(self.k[:, :1], self.v[:, :1], cache, cache.clone(), lengths)
            attune.attention_kvcache(self.q[:, :1], cache, cache, lengths)

        step()
        self.assertEqual(counted(step), {"attune::append_kv": 1, "attune::attention_kvcache": 1})

    def test_forward_and_backward_are_a_row_each(self):
        """This holds for every road to the kernels. An op has the dispatcher's row and no other."""
        begins = torch.tensor([0, 15, 40], dtype=torch.int32)
        heads_first = [x.transpose(1, 2) for x in (self.q, self.k, self.v)]
        packed = [x[0] for x in (self.q, self.k, self.v)]
        roads = {
            "attention": lambda q: attune.attention(q, self.k, self.v, "causal"),
            "op": lambda q: torch.ops.attune.attention(q, self.k, self.v, return_lse=False)[0],
            "flash": lambda q: attune.flash.flash_attn_func(q, self.k, self.v, causal=True),
            "varlen": lambda q: attune.flash.flash_attn_varlen_func(q, *packed[1:], begins, begins, 25, 25),
            "sdpa": lambda q: attune.sdpa.scaled_dot_product_attention(q, *heads_first[1:], enable_gqa=True)}
        first = {"varlen": packed[0], "sdpa": heads_first[0]}
        for road, call in roads.items():
            with self.subTest(road):
                q = first.get(road, self.q).clone()
                for _ in range(2):
                    call(q)
                self.assertEqual(rows(lambda: call(q)), ["attune::attention"])
                q.requires_grad_()
                for _ in range(2):
                    call(q).sum().backward()
                self.assertEqual(rows(lambda: call(q).sum().backward()), [
                    "attune::attention", "attune::attention_backward"])
                self.assertTrue(torch.isfinite(q.grad).all())

    def test_other_functions(self):
        o, lse = attune.attention(self.q, self.k, self.v, return_lse=True)
        given = torch.ones_like(o), self.q, self.k, self.v, o, lse
        bias = torch.zeros(4, 40, 40)
        for name, call in (("attention_backward", lambda: attune.attention_backward(*given)),
                           ("score_gradient", lambda: attune.score_gradient("bias", *given, bias=bias)),
                           ("quantise", lambda: attune.quantise(self.q)),
                           ("merge", lambda: attune.merge(o, lse, o, lse))):
            call()
            self.assertEqual(rows(call), [f"attune::{name}"])

    def test_autocast(self):
        def cast():
            with torch.autocast("cpu", torch.bfloat16):
                self.attend()

        cast()
        self.assertEqual(rows(cast), ["attune::attention"])

    def test_a_call_that_raises_leaves_no_open_row(self):
        def refused():
            with self.assertRaises(Exception):
                attune.attention(self.q, self.k[..., :16], self.v)

        self.assertEqual(rows(lambda: (refused(), self.attend())), ["attune::attention"] * 2)


if __name__ == "__main__":
    unittest.main()
