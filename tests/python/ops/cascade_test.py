#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cascade() against attention over whole requests, with NumPy on the CPU and with PyTorch on the device named by the
first argument: one to three levels, groups without keys, several tokens, sinks, a captured graph. Skips aloud (status
77) without NumPy, or without PyTorch and that device."""
import unittest
import unittest.mock

import attune
from library_and_device import DEVICE, np, torch

DTYPE = {"": "float32", "cpu": "float32", "cuda": "bfloat16"}[DEVICE]
LIMIT = 2e-2 if DEVICE == "cuda" else 2e-5


def tensor(values):
    if torch is None:
        return values.astype(DTYPE)
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(DEVICE, getattr(torch, DTYPE))


def ints(values):
    values = np.asarray(values, np.int32)
    return values if torch is None else torch.from_numpy(values).to(DEVICE)


def numbers(x):
    return np.asarray(x, np.float64) if isinstance(x, np.ndarray) else x.double().cpu().numpy()


def filled_with_nan(x):
    attune.core.tensors.fill(x, np.nan)
    return x


class Tree:
    """Requests in groups of groups: parts[level][group] are keys, of[level][request] is the group. All pages are in one
    cache, shuffled."""

    def __init__(self, seed, parts, of, rows, heads=8, heads_kv=2, d=64, page=4):
        random = np.random.default_rng(seed)
        self.rows, self.of, self.page, pages = rows, of, page, 0
        self.keys = [[random.standard_normal((2, n, heads_kv, d)) for n in level] for level in parts]
        total = sum(-(-n // page) for level in parts for n in level) + 2
        order = random.permutation(total)
        cache = np.full((2, total, page, heads_kv, d), np.nan)
        self.levels = []
        for level, groups in enumerate(self.keys):
            width = max(1, max(-(-n // page) for n in parts[level]))
            table = np.full((len(groups), width), -1)
            for group, keys in enumerate(groups):
                for at in range(keys.shape[1]):
                    if at % page == 0:
                        table[group, at // page] = order[pages]
                        pages += 1
                    cache[:, table[group, at // page], at % page] = keys[:, at]
            counts = [sum(n for n, g in zip(rows, of[level]) if g == group) for group in range(len(groups))]
            self.levels.append(
                dict(q_begins=ints(np.concatenate([[0], np.cumsum(counts)])), seqlen_q=max(counts),
                     kv_lengths=ints(parts[level]), page_table=ints(table)))
        self.cache = [tensor(x) for x in cache]
        for level in self.levels:
            level.update(k_cache=self.cache[0], v_cache=self.cache[1])
        self.q = tensor(random.standard_normal((sum(rows), heads, d)))

    def expected(self, causal, sinks=None):
        """Returns attention in float64, request by request over all of a request's keys."""
        q, o, lse, first = numbers(self.q), [], [], 0
        for request, rows in enumerate(self.rows):
            parts = [self.keys[level][self.of[level][request]] for level in range(len(self.keys))]
            keys, values = (numbers(tensor(x)) for x in np.concatenate(parts, 1))
            scores = np.einsum("rhd,khd->hrk", q[first:first + rows], np.repeat(keys, q.shape[1] // keys.shape[1],
                                                                                1)) / np.sqrt(q.shape[2])
            if causal:
                scores[:, np.arange(len(keys))[None] > len(keys) - rows + np.arange(rows)[:, None]] = -np.inf
            sink = np.full((q.shape[1], rows, 1), -np.inf) if sinks is None else np.broadcast_to(
                numbers(sinks)[:, None, None], (q.shape[1], rows, 1))
            whole = np.concatenate([scores, sink], 2)
            largest = np.maximum(whole.max(2, keepdims=True), -1e30)
            weights = np.exp(whole - largest)
            total = weights.sum(2, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                o.append(
                    np.nan_to_num(
                        np.einsum("hrk,khd->rhd", weights[..., :-1] / total,
                                  np.repeat(values, q.shape[1] // keys.shape[1], 1))))
                lse.append(np.where(total > 0, np.log(total) + largest, -np.inf)[..., 0])
            first += rows
        return np.concatenate(o), np.concatenate(lse, 1)


class CascadeTest(unittest.TestCase):
    def compare(self, tree, causal=False, **keywords):
        o, lse = attune.cascade(tree.q, tree.levels, is_causal=causal, return_lse=True, **keywords)
        want = tree.expected(causal, keywords.get("sinks"))
        np.testing.assert_allclose(numbers(o), want[0], rtol=LIMIT, atol=LIMIT)
        np.testing.assert_allclose(numbers(lse), want[1], rtol=LIMIT, atol=LIMIT)
        return o, lse

    def test_a_prefix_of_all(self):
        tree = Tree(1, [[300], [5, 1, 20, 0, 7, 64]], [[0] * 6, range(6)], [1] * 6)
        self.compare(tree)
        given = tensor(np.zeros((6, 8, 64)))
        self.assertIs(attune.cascade(tree.q, tree.levels, out=given), given)
        np.testing.assert_allclose(numbers(given), tree.expected(False)[0], rtol=LIMIT, atol=LIMIT)

    def test_three_levels_and_several_tokens(self):
        tree = Tree(2, [[90], [40, 0], [6, 9, 3, 8, 30]], [[0] * 5, [0, 0, 0, 1, 1], range(5)], [3, 1, 2, 4, 1])
        for causal in (False, True):
            self.compare(tree, causal)

    def test_one_level_and_no_keys(self):
        self.compare(Tree(3, [[17, 4]], [[0, 1]], [2, 2]), True)
        o, lse = self.compare(Tree(4, [[0], [0, 3]], [[0, 0], [0, 1]], [1, 1]))
        self.assertTrue((numbers(o[0]) == 0).all() and (numbers(lse[:, 0]) == -np.inf).all())

    def test_sinks_count_once(self):
        sinks = np.linspace(-1, 3, 8).astype(np.float32)
        self.compare(Tree(5, [[50], [9, 2]], [[0, 0], [0, 1]], [1, 1]),
                     sinks=sinks if torch is None else torch.from_numpy(sinks).to(DEVICE))

    def test_rows_outside_a_level_see_the_keys_of_other_levels(self):
        tree, of_one = (Tree(9, [[50], [9, 2, 20, 7]], [[0] * 4, range(4)], [1, 2, 1, 1]) for _ in range(2))
        tree.levels[0]["q_begins"] = ints([0, 3])
        empty = attune.core.tensors.empty
        with unittest.mock.patch("attune.core.tensors.empty", lambda *given: filled_with_nan(empty(*given))):
            o, lse = attune.cascade(tree.q, tree.levels, is_causal=True, return_lse=True)
        of_one.keys[0] = [keys[:, :0] for keys in of_one.keys[0]]
        for rows, (want, want_lse) in ((slice(0, 3), tree.expected(True)), (slice(3, 5), of_one.expected(True))):
            np.testing.assert_allclose(numbers(o)[rows], want[rows], rtol=LIMIT, atol=LIMIT)
            np.testing.assert_allclose(numbers(lse)[:, rows], want_lse[:, rows], rtol=LIMIT, atol=LIMIT)

    def test_rows_outside_all_levels(self):
        """With two levels such rows become 0; with one level they are unchanged, as the docstrings say."""
        tree = Tree(10, [[20], [5, 3]], [[0, 0], [0, 1]], [2, 1])
        tree.q = tensor(np.concatenate([numbers(tree.q)] * 2))
        for levels, left in ((tree.levels, 0), (tree.levels[1:], 7)):
            o, lse = attune.cascade(tree.q, levels, return_lse=True, out=tensor(np.full((6, 8, 64), 7.0)))
            self.assertTrue((numbers(o)[3:] == left).all() and (numbers(lse)[:, 3:] == -np.inf).all() and
                            (numbers(o)[:3] != left).all())

    def test_wrong_arguments_are_refused_by_name(self):
        tree = Tree(6, [[8], [2, 2]], [[0, 0], [0, 1]], [1, 1])
        with self.assertRaisesRegex(ValueError, "levels is empty"):
            attune.cascade(tree.q, [])
        with self.assertRaisesRegex(ValueError, r"levels\[1\] lacks q_begins"):
            attune.cascade(tree.q, [tree.levels[0], {name: tree.levels[1][name] for name in ("k_cache", "v_cache")}])
        with self.assertRaisesRegex(ValueError, r"levels\[0\] has 'window'"):
            attune.cascade(tree.q, [dict(tree.levels[0], window=(1, 0)), tree.levels[1]])

    @unittest.skipUnless(DEVICE == "cuda", "captured graphs are of CUDA")
    def test_a_graph_follows_lengths(self):
        tree = Tree(7, [[60], [20, 20, 20]], [[0] * 3, range(3)], [1] * 3)
        attune.prepare(attune.cascade, tree.q, tree.levels)
        attune.cascade(tree.q, tree.levels)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = attune.cascade(tree.q, tree.levels)
        for lengths in ([20, 20, 20], [3, 0, 19]):
            tree.levels[1]["kv_lengths"].copy_(torch.tensor(lengths))
            graph.replay()
            tree.keys[1] = [keys[:, :n] for keys, n in zip(tree.keys[1], lengths)]
            np.testing.assert_allclose(numbers(o), tree.expected(False)[0], rtol=LIMIT, atol=LIMIT)


@unittest.skipUnless(torch is not None, "of PyTorch")
class FlashInferTest(unittest.TestCase):
    def lists(self, tree):
        """Returns a tree's levels in FlashInfer's form."""
        begins, indptr, indices, last = [], [], [], []
        for level in tree.levels:
            lengths = level["kv_lengths"].tolist()
            counts = [-(-n // tree.page) for n in lengths]
            begins.append(level["q_begins"])
            indptr.append(ints(np.concatenate([[0], np.cumsum(counts)])))
            indices.append(ints([page for row, n in zip(level["page_table"].tolist(), counts) for page in row[:n]]))
            last.append(ints([n - (count - 1) * tree.page if count else 0 for n, count in zip(lengths, counts)]))
        return begins, indptr, indices, last

    def test_wrapper(self):
        for layout in ("NHD", "HND"):
            wrapper = attune.flashinfer.MultiLevelCascadeAttentionWrapper(2, None, layout)
            for seed, own in ((11, [6, 9, 0]), (12, [7, 1, 4])):  # the second plan reuses the first one's tensors
                tree = Tree(seed, [[40], own], [[0] * 3, range(3)], [2, 1, 1])
                cache = torch.stack(tree.cache, 1)
                wrapper.plan(*self.lists(tree), 8, 2, 64, tree.page, causal=True)
                held = wrapper._levels[1]["page_table"].data_ptr()
                o = wrapper.run(tree.q, cache.transpose(2, 3).contiguous() if layout == "HND" else cache)
                np.testing.assert_allclose(numbers(o), tree.expected(True)[0], rtol=LIMIT, atol=LIMIT)
            self.assertEqual(wrapper._levels[1]["page_table"].data_ptr(), held)
        with self.assertRaisesRegex(ValueError, "qo_indptr_arr is of 1 tensors; must be a list of 2"):
            wrapper.plan(*([one[0]] for one in self.lists(tree)), 8, 2, 64, tree.page)
        with self.assertRaisesRegex(ValueError, "kv_layout is 'DHN'"):
            attune.flashinfer.MultiLevelCascadeAttentionWrapper(2, None, "DHN")

    def test_a_refused_plan_changes_nothing(self):
        """Once a plan whose second level was refused had already replaced the first level's lists."""
        wrapper = attune.flashinfer.MultiLevelCascadeAttentionWrapper(2, None, use_cuda_graph=True)
        tree, other = Tree(13, [[40], [6, 9, 0]], [[0] * 3, range(3)], [1] * 3), Tree(
            14, [[30], [6, 90, 0]], [[0] * 3, range(3)], [1] * 3)
        cache = torch.stack(tree.cache, 1)
        wrapper.plan(*self.lists(tree), 8, 2, 64, tree.page)
        want = wrapper.run(tree.q, cache)
        with self.assertRaisesRegex(
                ValueError,
                "page_table of this plan is .*; with use_cuda_graph a plan must have as many requests"):
            wrapper.plan(*self.lists(other), 8, 2, 64, tree.page)
        self.assertTrue(torch.equal(wrapper.run(tree.q, cache), want))


if __name__ == "__main__":
    unittest.main()
