#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""score_mod and mask_mod of attune.attention(): traced functions and text, on the CPU against float64, and against
PyTorch's flex_attention if PyTorch is installed. The functions are well known to users of FlexAttention, rewritten from
their definitions. Skips aloud (status 77) without NumPy or the CPU target."""
import functools
import math
import os
import re
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

import attune
from attune.score import programs as _programs
from published_mods import (activation, batchify, flamingo, jagged, morton_natten, natten, noop, paged, rope_score,
                            sliding_tile, soft_window, stand_alone_self_attention, tiled_natten, transfusion)

BATCH, HEADS, HEADS_KV, LENGTH, DIM = 2, 4, 2, 45, 64
DRAW = np.random.default_rng(7)
SLOPES = np.array(attune.alibi_slopes(HEADS), np.float32)
DOCUMENTS = np.sort(DRAW.integers(0, 4, (BATCH, LENGTH)), axis=1)
GLOBAL_STEP = 3


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding_window(window):
    def mask(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx <= window)
    return mask


def prefix_lm(prefix):
    return lambda b, h, q_idx, kv_idx: (kv_idx < prefix[b]) | causal(b, h, q_idx, kv_idx)


def document_mask(inner):
    def mask(b, h, q_idx, kv_idx):
        return (DOCUMENTS[b, q_idx] == DOCUMENTS[b][kv_idx]) & inner(b, h, q_idx, kv_idx)
    return mask


def dilated_sliding_window(window, dilation):
    def mask(b, h, q_idx, kv_idx):
        distance = abs(q_idx - kv_idx)
        return (distance <= window) & (distance % dilation == 0)
    return mask


def local_global(window, num_global):
    def mask(b, h, q_idx, kv_idx):
        return (kv_idx < num_global) | (q_idx < num_global) | (np.abs(q_idx - kv_idx) <= window)
    return mask


def alibi(score, b, h, q_idx, kv_idx):
    return score + SLOPES[h] * (kv_idx - q_idx)


def softcap(cap):
    return lambda score, b, h, q_idx, kv_idx: cap * np.tanh(score / cap)


def relative_bias(score, b, h, q_idx, kv_idx):
    return score + (q_idx - kv_idx)


def checkerboard(score, b, h, q_idx, kv_idx):
    return np.where((kv_idx - q_idx) % 2 == 0, score * 0.5, np.where(kv_idx == q_idx - 1, score * 2, score))


def same_of(ids):
    return lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx]


def distance_bias(table):
    return lambda score, b, h, q_idx, kv_idx: score + table[h, q_idx - kv_idx + LENGTH - 1]


INDICES = np.ix_(*map(np.arange, (BATCH, HEADS, LENGTH, LENGTH)))


def operands():
    random = np.random.default_rng(3)
    draw = lambda *shape: random.standard_normal(shape).astype(np.float32)
    return draw(BATCH, LENGTH, HEADS, DIM), draw(BATCH, LENGTH, HEADS_KV, DIM), draw(BATCH, LENGTH, HEADS_KV, DIM)


def expected(q, k, v, score_mod=None, mask_mod=None):
    """Computes with the functions called on float64 arrays and all indices."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = np.repeat(k, HEADS // HEADS_KV, axis=2), np.repeat(v, HEADS // HEADS_KV, axis=2)
    scores = np.einsum("bihd,bjhd->bhij", q, k) * DIM ** -0.5
    scores = scores if score_mod is None else score_mod(scores, *INDICES)
    scores = scores if mask_mod is None else np.where(mask_mod(*INDICES), scores, -np.inf)
    weights = np.exp(scores)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bhij,bjhd->bihd", weights / np.where(total > 0, total, 1), v)


class ScoreModTest(unittest.TestCase):
    def compare(self, score_mod=None, mask_mod=None, want=None, one_by_one=False, **features):
        """one_by_one: where a function indexes tensors in steps, table[b][kv_idx], which means something else for
        arrays."""
        given = operands()
        if one_by_one:
            want = [mod and np.vectorize(mod) for mod in (score_mod, mask_mod)]
        o = attune.attention(*given, score_mod=score_mod, mask_mod=mask_mod, **features)
        self.assertLess(np.abs(o - expected(*given, *(want or (score_mod, mask_mod)))).max(), 3e-5)
        return o

    def test_masks(self):
        prefix = np.array([3, 30])
        for mask in (causal, sliding_window(8), prefix_lm(prefix), dilated_sliding_window(12, 3), local_global(5, 4)):
            self.compare(mask_mod=mask)
        for mask in (document_mask(causal), document_mask(sliding_window(4))):
            self.compare(mask_mod=mask, one_by_one=True)

    def test_scores(self):
        table = DRAW.standard_normal((HEADS, 2 * LENGTH - 1)).astype(np.float32)
        for score in (alibi, softcap(1.5), softcap(2), relative_bias, checkerboard, distance_bias(table)):
            self.compare(score_mod=score)

    def test_published_masks(self):
        image = DRAW.integers(1, 9, (BATCH, LENGTH))
        starts, ends = np.full((BATCH, LENGTH), -1), np.full((BATCH, LENGTH), -1)
        for b, first, last in ((0, 5, 14), (0, 20, 33), (1, 0, 40)):
            starts[b, first:last], ends[b, first:last] = first, last
        pages = np.array([[2, -1, 0, 4, 1, 3], [-1, 1, 0, -1, 2, -1]])
        lengths = [7, 20, 1, LENGTH - 28]
        document, offsets = np.repeat(np.arange(4), lengths), np.cumsum([0, *lengths[:-1]])
        inner = lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (kv_idx < 9)
        for mask in (natten(9, 5, 3), natten(5, 9, 5), tiled_natten(8, 6, 3, 2), morton_natten(
                8, 8, 5), sliding_tile(6, 3, 2), stand_alone_self_attention(
                    9, 3), transfusion(starts, ends), flamingo(np.sort(image // 4), 9), jagged(
                        document, offsets, inner), batchify(causal, np.array([20, 45])), paged(pages, 8, causal)):
            self.compare(mask_mod=mask)

    def test_published_scores(self):
        parts = DRAW.standard_normal((BATCH, HEADS, LENGTH, 2)).astype(np.float32), DRAW.standard_normal(
            (BATCH, LENGTH, 2)).astype(np.float32)
        for score in (noop, activation, rope_score(*parts), soft_window(SLOPES)):
            self.compare(score_mod=score)

    def test_score_mod_mask_mod_and_features_together(self):
        bias = DRAW.standard_normal((LENGTH, LENGTH)).astype(np.float32)
        own = DRAW.standard_normal((LENGTH,)).astype(np.float32)
        score = lambda score, b, h, q_idx, kv_idx: 2 * score + own[kv_idx]
        seen = lambda b, h, q_idx, kv_idx: own[kv_idx] < 0.5
        self.compare(score, seen, (lambda s, *at: 2 * s + own[at[3]] + bias, seen), bias=bias)

    def test_every_type_of_tensor(self):
        values = DRAW.integers(0, 3, (LENGTH,))
        for dtype in (np.bool_, np.uint8, np.int32, np.int64, np.float32, np.float16):
            table = values.astype(dtype)
            self.compare(score_mod=lambda score, b, h, q_idx, kv_idx: score + table[kv_idx] * 0.5)

    def test_strides_and_indices(self):
        table = DRAW.standard_normal((LENGTH, HEADS, 2 * BATCH)).astype(np.float32).transpose(2, 1, 0)[::2]
        number = np.array(0.25, np.float32)
        order = DRAW.permutation(LENGTH)
        score = lambda score, b, h, q_idx, kv_idx: score * number + table[b, h][order[kv_idx]] + table[1, 2, q_idx]
        self.compare(score_mod=score, one_by_one=True)

    def test_operators(self):
        for score in (lambda s, b, h, q, k: s**2 - s**3 / 7 + 2.0**-abs(q - k) +
                      (1 + abs(s))**-2 + np.sqrt(s * s) + s**0, lambda s, b, h, q, k: s + (q - k) // 4 + (q - k) % 5 +
                      (k - q) / 4 + -s * 0.5 + (s // 0.5) % 2, lambda s, b, h, q, k: np.minimum(s, 0.5) + np.maximum(
                          0.25, s) + np.clip(s, -1, 1) + np.floor(s) + np.ceil(s) + np.trunc(s),
                      lambda s, b, h, q, k: np.exp(-s * s) + np.exp2(-s * s) + np.log(s * s + 1) + np.log2(s * s + 1) +
                      (s > 0) * 2.0,
                      lambda s, b, h, q, k: np.where(np.logical_or(q < 3, np.logical_not(k < 9)) ^ (h == 1), s, s + 1),
                      lambda s, b, h, q, k: s + ((q & 3) | (k << 1) ^ 5) * 0.25 + (~q >> 1) * 0.125):
            self.compare(score_mod=score)

    def test_functions_that_functions_call(self):
        def both(*masks):
            return lambda *at: functools.reduce(lambda a, b: a & b, [mask(*at) for mask in masks])
        self.compare(mask_mod=both(causal, sliding_window(6), document_mask(causal)), one_by_one=True)
        self.compare(mask_mod=functools.partial(
            lambda window, b, h, q_idx, kv_idx, step=GLOBAL_STEP: abs(q_idx - kv_idx) < window + step, 4))

    def test_other_numbers_and_tensors_need_no_other_program(self):
        programs = set()
        for window in (2, 9, 20):
            mask = sliding_window(window)
            self.compare(mask_mod=mask)
            programs.add(attune.mask_mod(mask).text)
        for _ in range(2):
            table = DRAW.standard_normal((HEADS, 2 * LENGTH - 1)).astype(np.float32)
            self.compare(score_mod=distance_bias(table))
        self.assertEqual(len(programs), 1)
        found = _programs.program_of.cache_info().misses
        self.compare(mask_mod=sliding_window(33))
        self.assertEqual(_programs.program_of.cache_info().misses, found)

    def test_a_number_that_python_reads_becomes_a_constant(self):
        def sum_of(terms, is_on):
            def score(score, b, h, q_idx, kv_idx):
                for i in range(terms):
                    score = score + i * 0.5 * (kv_idx == i)
                return score * math.sqrt(terms) if is_on else score
            return score
        for terms, is_on in ((1, False), (4, True), (2, True), (4, False)):
            self.compare(score_mod=sum_of(terms, is_on))

    def test_a_shape_that_python_reads_becomes_a_constant(self):
        for length in (LENGTH, 7):
            table = DRAW.standard_normal((length,)).astype(np.float32)
            self.compare(score_mod=lambda score, b, h, q_idx, kv_idx: score + table[kv_idx % table.shape[0]])

    def test_a_changed_global_or_object_is_seen(self):
        global GLOBAL_STEP
        mask = lambda b, h, q_idx, kv_idx: abs(q_idx - kv_idx) <= GLOBAL_STEP
        for GLOBAL_STEP in (3, 8):
            self.compare(mask_mod=mask)

        class Window:
            size = 3

            def mask(self, b, h, q_idx, kv_idx):
                return abs(q_idx - kv_idx) <= self.size
        window = Window()
        for window.size in (3, 8):
            self.compare(mask_mod=window.mask)

    def test_attributes_of_functions(self):
        """They were left out of what is traced."""
        def mask(b, h, q_idx, kv_idx):
            return abs(q_idx - kv_idx) <= mask.window

        def score(score, b, h, q_idx, kv_idx):
            return score + score_of.table[kv_idx]

        score_of = score
        for mask.window, score.table in ((3, DRAW.standard_normal(
            (LENGTH, )).astype(np.float32)), (8, SLOPES[np.arange(LENGTH) % HEADS])):
            self.compare(mask_mod=mask)
            self.compare(score, want=(lambda s, b, h, q, k: s + score.table[k], None))

    def test_text(self):
        text = "float slope = slopes[head];\nreturn score + slope * (kv_idx - q_idx) * factor;"
        for factor in (1, 0.5):
            mod = attune.score_mod(text, slopes=SLOPES, factor=float(factor))
            self.compare(mod, want=(lambda s, b, h, q, k: s + SLOPES[h] * (k - q) * factor, None))
        self.compare(mask_mod="return kv_idx <= q_idx;", want=(None, causal))
        first, second = (DRAW.standard_normal((LENGTH,)).astype(np.float32) for _ in range(2))
        self.compare(attune.score_mod("return score + t[kv_idx];", t=first),
                     attune.mask_mod("return t[kv_idx] < limit;", t=second, limit=0.5),
                     want=(lambda s, b, h, q, k: s + first[k], lambda b, h, q, k: second[k] < 0.5))

    def test_a_function_made_into_a_mod_is_still_that_function(self):
        mod = attune.mask_mod(causal)
        self.assertTrue(mod(0, 0, 3, 2))
        self.compare(mask_mod=mod)
        self.compare(mask_mod=document_mask(mod), one_by_one=True)
        self.assertIn("kv_idx", repr(mod))

    def test_prepare(self):
        given = operands()
        prepare = lambda mask_mod: attune.prepare(attune.attention, *given, mask_mod=mask_mod)  # noqa: E731
        self.assertIs(prepare(causal), prepare(causal))
        self.assertIsNot(prepare(causal), prepare(sliding_window(3)))

    def refused(self, message, kind=TypeError, score_mod=None, mask_mod=None):
        with self.assertRaisesRegex(kind, message):
            attune.attention(*operands(), score_mod=score_mod, mask_mod=mask_mod)

    def test_choices_of_python_name_their_line(self):
        def branches(score, b, h, q_idx, kv_idx):
            if q_idx < kv_idx:
                return score
            return -score
        line = branches.__code__.co_firstlineno + 1
        self.refused(rf"score_mod_test\.py:{line}: a Python if.*use torch\.where", score_mod=branches)
        for mask in (lambda b, h, q, k: q >= k and k > 3, lambda b, h, q, k: q >= k or k > 3,
                     lambda b, h, q, k: not q >= k, lambda b, h, q, k: 0 <= q - k < 5,
                     lambda b, h, q, k: max(q, k) > 3):
            self.refused(r"score_mod_test\.py:\d+: a Python if", mask_mod=mask)
        self.refused("known when the function is traced", mask_mod=lambda b, h, q, k: [1, 2, 3][q] > k)

    def test_expressions_outside_the_language_are_refused(self):
        table, wide, lists = np.zeros((HEADS, LENGTH), np.float32), np.zeros((LENGTH,)), np.zeros((1,) * 5, np.float32)
        for message, score in ((r"numpy\.sin is not in the score language; functions are abs",
                                lambda s, *at: np.sin(s)), (r"numpy\.cumsum is not", lambda s, *at: np.cumsum(s)),
                               ("table has 2 dimensions, shape .* and gets 3 indices",
                                lambda s, b, h, q, k: s + table[b, h, k]),
                               ("the result of an operation on table with none of its 1 indices is not a value yet",
                                lambda s, b, h, q, k: s + table[h]), ("table is indexed by slice",
                                                                      lambda s, b, h, q, k: s + table[:, k]),
                               ("table is indexed by a value of type float", lambda s, b, h, q, k: s + table[h, s]),
                               ("wide is float64; must be one of fp32",
                                lambda s, b, h, q, k: s + wide[k]), ("lists has 5 dimensions",
                                                                     lambda s, b, h, q, k: s + lists[0, 0, 0, 0, 0]),
                               ("condition of where is of type int", lambda s, b, h, q, k: np.where(q, s, 0.0)),
                               ("'&' takes bools or ints, not a float",
                                lambda s, b, h, q, k: s & 1), ("exponent 0.3",
                                                               lambda s, b, h, q, k: s**0.3), ("score_mod returns None",
                                                                                               lambda s, *at: None),
                               (r"called with \(score, b, h, q_idx, kv_idx\)",
                                lambda s, b: s), ("does not fit in an int of 32 bits", lambda s, b, h, q, k: s +
                                                  (q + 2**40)), ("functions of math", lambda s, *at: math.exp(s))):
            self.refused(message, score_mod=score)
        self.refused(r"\.item of a value of type float", AttributeError, score_mod=lambda s, *at: s.item())
        self.refused("mask_mod returns a value of type int", mask_mod=lambda b, h, q, k: q - k)
        self.refused("window is 1099511627776; for mask_mod it must .* of 32 bits", ValueError,
                     mask_mod=sliding_window(2**40))
        self.refused("ids holds 4294967297; for mask_mod it must .* of 32 bits", ValueError, mask_mod=same_of(
            np.array([1, 2**32 + 1] * 23)))
        self.refused("mask_mod is of type int", mask_mod=3)
        self.refused("mask_mod is a result of attune.score_mod", ValueError, mask_mod=attune.score_mod(alibi))

    def test_text_that_is_refused(self):
        self.refused(r"score_mod:1:16: 'slops' is not declared", attune.Error, score_mod="return score + slops[head];")
        for message, kind, text, given in (("reads t, which is not given", ValueError,
                                            "// capture t: fp32[1]\nreturn score + t[head];", {}),
                                           ("t is float64", ValueError, "return score + t[head];", {"t": np.zeros(3)}),
                                           ("t is fp32 with 1 dimensions; score_mod declares fp32 with 2",
                                            ValueError, "// capture t: fp32[2]\nreturn score + t[head][0];", {
                                                "t": SLOPES
                                            }), ("t is of type list", TypeError, "return score + t[head];", {
                                                "t": [1, 2]}), ("t has shape", ValueError, "return score + t[head];", {
                                                    "t": SLOPES[::-1]})):
            with self.assertRaisesRegex(kind, re.escape(message)):
                attune.score_mod(text, **given)
        with self.assertRaisesRegex(TypeError, "only a text takes captures"):
            attune.score_mod(alibi, slopes=SLOPES)


@unittest.skipIf(torch is None, "there is no PyTorch here")
class TorchTest(unittest.TestCase):
    """Against torch.nn.attention.flex_attention, run without torch.compile."""

    def compare(self, score_mod=None, mask_mod=None):
        import warnings
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        q, k, v = map(torch.from_numpy, operands())
        block_mask = None if mask_mod is None else create_block_mask(mask_mod, BATCH, HEADS, LENGTH, LENGTH,
                                                                     device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that it is slow
            want = flex_attention(*(x.transpose(1, 2) for x in (q, k, v)), score_mod, block_mask,
                                  enable_gqa=True).transpose(1, 2)
        o = attune.attention(q, k, v, score_mod=score_mod, mask_mod=mask_mod)
        self.assertLess((o - want).abs().max().item(), 3e-5)

    def test_scores(self):
        slopes, table, cap = torch.from_numpy(SLOPES), torch.randn(HEADS, LENGTH,
                                                                   dtype=torch.bfloat16), torch.tensor(1.5)
        tables = {"slopes": slopes}
        for score in (lambda score, b, h, q_idx, kv_idx: score + slopes[h] *
                      (kv_idx - q_idx), lambda score, b, h, q_idx, kv_idx: 20.0 * torch.tanh(score / 20.0),
                      lambda score, b, h, q_idx, kv_idx: cap * (score / cap).tanh(),
                      lambda score, b, h, q_idx, kv_idx: torch.where(q_idx >= kv_idx, score, -float("inf")),
                      lambda score, b, h, q_idx, kv_idx: torch.where(q_idx >= kv_idx, score, torch.tensor(-1.0)),
                      lambda score, b, h, q_idx, kv_idx: score + table[h, kv_idx] - torch.exp2(-(
                          (h + 1) * 8.0 / HEADS)) * (q_idx - kv_idx).abs(),
                      lambda score, b, h, q_idx, kv_idx: torch.nn.functional.relu(score) + tables["slopes"][
                          h] * q_idx.to(torch.float32), lambda score, b, h, q_idx, kv_idx: torch.sigmoid(
                              score) + score.clamp(min=0) + torch.rsqrt(1 + score * score).to(torch.float32)):
            self.compare(score_mod=score)

    def test_a_tensor_in_the_place_of_a_dtype(self):
        """x.to(other) stayed of x's type."""
        counts = torch.arange(LENGTH)
        for score in (lambda score, b, h, q_idx, kv_idx: score +
                      (score * 3).to(q_idx), lambda score, b, h, q_idx, kv_idx: score +
                      (score * 3).to(counts), lambda score, b, h, q_idx, kv_idx: score +
                      (score * 3).type_as(counts) + kv_idx.to(score) / 8):
            self.compare(score_mod=score)

    def test_masks(self):
        from torch.nn.attention.flex_attention import and_masks, or_masks
        documents, prefix = torch.from_numpy(DOCUMENTS), torch.tensor([3, 30], dtype=torch.int32)
        same = lambda b, h, q_idx, kv_idx: documents[b, q_idx] == documents[b][kv_idx]
        in_prefix = lambda b, h, q_idx, kv_idx: kv_idx < prefix[b]
        for mask in (causal, same, and_masks(causal, same), or_masks(causal,
                                                                     in_prefix), and_masks(causal, sliding_window(7)),
                     lambda b, h, q_idx, kv_idx: torch.logical_and(q_idx >= kv_idx, (q_idx - kv_idx) % 3 == 0)):
            self.compare(mask_mod=mask)

    def test_a_tensor_of_an_object(self):
        class Model:
            slopes = torch.from_numpy(SLOPES)

            def score(self, score, b, h, q_idx, kv_idx):
                return score - self.slopes[h] * (q_idx - kv_idx).abs()
        model = Model()
        self.compare(score_mod=model.score)
        model.slopes = model.slopes * 2
        self.compare(score_mod=model.score)

    def test_refusals(self):
        given = [torch.from_numpy(x) for x in operands()]
        table = torch.zeros(LENGTH, requires_grad=True)
        for kind, message, score in ((TypeError, r"score_mod_test\.py:\d+: torch\.sin is not in the score language",
                                      lambda s, *at: torch.sin(s)),
                                     (TypeError, r"torch\.where is in .* not with these arguments",
                                      lambda s, *at: torch.where(s > 0)), (TypeError, "a conversion to fp16",
                                                                           lambda s, *at: s.to(torch.float16)),
                                     (TypeError, r"torch\.softmax is not", lambda s, *at: torch.softmax(s, 0))):
            with self.assertRaisesRegex(kind, message):
                attune.attention(*given, score_mod=score)
        with self.assertRaisesRegex(ValueError, "table requires a gradient"):
            attune.attention(*given, mask_mod=lambda b, h, q, k: table[k] > 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATTUNE_STORE"] = os.path.join(folder, "store", "store.db")
        try:
            attune.Context("cpu")
        except attune.Error as error:
            print(f"SKIP: there is no CPU target here: {error}")
            sys.exit(77)
        unittest.main()
