#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""prefix_tree() and its mask: a packed tree gives each of its sequences what the sequence has alone, gradients too. Skips
aloud (status 77) without NumPy."""
import random
import unittest

import attune
from library_and_device import np


def draw_tree(source, nodes):
    """Returns parents and lengths of random trees in depth-first order."""
    parents, path = [], []
    for node in range(nodes):
        del path[source.randint(0, len(path)):]
        parents.append(path[-1] if path else -1)
        path.append(node)
    return parents, [source.choice([0, 1, 7, 40, 90]) for _ in range(nodes)]


def tokens_of(node, parents, lengths):
    """Returns the tokens from the root to the node's end."""
    begins = np.cumsum([0, *lengths])
    own = np.arange(begins[node], begins[node + 1])
    return own if parents[node] == -1 else np.concatenate([tokens_of(parents[node], parents, lengths), own])


class PrefixTreeTest(unittest.TestCase):

    def test_sequences_have_what_they_have_alone(self):
        for seed in range(2):
            parents, lengths = draw_tree(random.Random(seed), 9)
            lengths[0] += 3
            packed, x = attune.prefix_tree(parents, lengths), np.random.default_rng(seed)
            q, k, v, dout = (x.standard_normal((1, sum(lengths), heads, 32), np.float32) for heads in (4, 2, 2, 4))
            mask = attune.prefix_tree_mask(np.array([packed.ends], np.int32))
            o, lse = attune.attention(q, k, v, mask_mod=mask, return_lse=True)
            dq, dk, dv = attune.attention_backward(dout, q, k, v, o, lse, mask_mod=mask)
            dk_sum, dv_sum = np.zeros_like(dk), np.zeros_like(dv)
            begins = np.cumsum([0, *lengths])
            for node in range(len(parents)):
                tokens, own = tokens_of(node, parents, lengths), slice(begins[node], begins[node + 1])
                self.assertEqual([packed.positions[t] for t in tokens], list(range(len(tokens))))
                if lengths[node] == 0:
                    continue
                alone = [each[:, tokens] for each in (q, k, v)]
                alone_o, alone_lse = attune.attention(*alone, is_causal=True, return_lse=True)
                np.testing.assert_allclose(o[:, own], alone_o[:, -lengths[node]:], atol=2e-6)
                of_node = np.zeros_like(alone_o)  # dout of the node's tokens alone
                of_node[:, -lengths[node]:] = dout[:, own]
                alone_dq, alone_dk, alone_dv = attune.attention_backward(of_node, *alone, alone_o, alone_lse, is_causal=True)
                np.testing.assert_allclose(dq[:, own], alone_dq[:, -lengths[node]:], atol=2e-5)
                dk_sum[:, tokens] += alone_dk
                dv_sum[:, tokens] += alone_dv
            np.testing.assert_allclose(dk, dk_sum, atol=1e-4)
            np.testing.assert_allclose(dv, dv_sum, atol=1e-4)

    def test_an_empty_tree_and_one_node(self):
        self.assertEqual(attune.prefix_tree([], []), ([], []))
        self.assertEqual(attune.prefix_tree([-1, -1], [2, 1]), ([2, 2, 3], [0, 1, 0]))

    def test_what_is_refused(self):
        for words, make in ((r"parents\[3\] is 1; must be -1 or on the way to node 2 \(\[0, 2\]\)",
                             lambda: attune.prefix_tree([-1, 0, 0, 1], [1, 1, 1, 1])),
                            (r"parents\[0\] is 0", lambda: attune.prefix_tree([0], [1])),
                            (r"lengths\[1\] is -2; must be 0 or more", lambda: attune.prefix_tree([-1, 0], [1, -2])),
                            (r"lengths has 1 nodes; must have 2", lambda: attune.prefix_tree([-1, 0], [1])),
                            (r"ends is int64 of shape \(1, 3\); must be int32 \[batch, seqlen\]",
                             lambda: attune.prefix_tree_mask(np.zeros((1, 3), np.int64))),
                            (r"ends is int32 of shape \(3,\)", lambda: attune.prefix_tree_mask(np.zeros(3, np.int32)))):
            with self.assertRaisesRegex(ValueError, words):
                make()


if __name__ == "__main__":
    unittest.main()
