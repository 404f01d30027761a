# SPDX-License-Identifier: Apache-2.0
"""torch.profiler shows calls by attune's names, also calls that the C module would repeat without Python."""
import unittest

import torch
from torch.profiler import ProfilerActivity, profile

import attune


def counted(run):
    """Returns how often each event of attune occurs."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return {event.key: event.count for event in seen.key_averages() if event.key.startswith("attune::")}


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

    def test_gradients_pass(self):
        q = self.q.clone().requires_grad_()
        events = counted(lambda: attune.attention(q, self.k, self.v, "causal").sum().backward())
        self.assertGreaterEqual(events["attune::attention"], 1)
        self.assertTrue(torch.isfinite(q.grad).all())


if __name__ == "__main__":
    unittest.main()
