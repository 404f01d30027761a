#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Meaning of a traced score_mod or mask_mod: that of the function on PyTorch's tensors, with the variables as they are
at the call, whatever way the call takes; else a sentence.

    traced_functions_test.py

Skips aloud (status 77) without PyTorch or the CPU target."""
import functools
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

import gradient_cases
import torch
import torch.autograd.forward_ad as forward
from gradient_cases import PLACE, draw, leaf
from torch.utils.flop_counter import FlopCounterMode

import attune

ROWS, HEADS = 12, 2
Q, K, V = (draw(1, ROWS, HEADS, 16 + i)[..., :16].contiguous() for i in range(3))
PLACES = [
    torch.arange(n).reshape([-1 if axis == at else 1 for axis in range(4)])
    for at, n in enumerate((1, HEADS, ROWS, ROWS))]
attend = functools.partial(attune.attention, **PLACE)


def wanted(score_mod=None, mask_mod=None, q=Q, v=V):
    """Computes with the functions called on tensors."""
    scores = torch.einsum("bihd,bjhd->bhij", q, K[..., :q.shape[3]]) * q.shape[3] ** -0.5
    scores = scores if score_mod is None else score_mod(scores, *PLACES)
    scores = scores if mask_mod is None else scores.masked_fill(~mask_mod(*PLACES), -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1).nan_to_num(0.0), v)


class TracedTest(unittest.TestCase):
    def near(self, found, want, what=""):
        self.assertLess((found - want).abs().max().item(), 1e-5, what)

    def same(self, score_mod=None, mask_mod=None):
        self.near(attend(Q, K, V, score_mod=score_mod, mask_mod=mask_mod), wanted(score_mod, mask_mod))


class MeaningTest(TracedTest):
    def test_the_method_where_has_other_arguments_than_the_function(self):
        self.same(mask_mod=lambda b, h, i, j: (i >= j).where(j % 3 == 0, j % 2 == 0))
        for score in (lambda s, b, h, i, j: s.where(i > j, -s), lambda s, b, h, i, j: torch.tensor(1.0).where(i > j, s),
                      lambda s, b, h, i, j: torch.where(i > j, s, -s),
                      lambda s, b, h, i, j: s.where(condition=i > j, other=j * 0.5)):
            self.same(score)

    def test_rsub_has_alpha_and_other_names_with_an_r_are_refused(self):
        self.same(lambda s, b, h, i, j: torch.rsub(s, j, alpha=3) + torch.rsub(j, 2) * 0.1)
        self.same(lambda s, b, h, i, j: 2.0 ** -abs(s) + 3 // (1 + j) + 1 / (2 + s * s) + 5 % (1 + i))
        with self.assertRaisesRegex(TypeError, r"torch\.rrelu is not in the score language"):
            attend(Q, K, V, score_mod=lambda s, b, h, i, j: torch.rrelu(s))

    def test_what_python_looks_up_is_a_constant_or_refused(self):
        for number in (8, 3):
            self.same(lambda s, b, h, i, j: s * {8: 2.0, 5: 3.0}.get(number, 1.0))
            self.same(lambda s, b, h, i, j: s * (2.0 if number in {8, 9} else 1.0))
        for message, mask in (("a set, or the key of a dict, needs a value now", lambda b, h, i, j:
                               (i >= j)
                               if h in {0} else (i <= j)), ("with none of its 4 indices is not a single element",
                                                            lambda b, h, i, j: i >= {PLACES[1]: 1}.get(PLACES[1], 2))):
            with self.assertRaisesRegex(TypeError, message):
                attend(Q, K, V, mask_mod=mask)

    def test_attributes_of_functions_may_begin_with_an_underscore(self):
        def score(s, b, h, i, j):
            return s * score._factor + score._Table__rows[i]
        for score._factor in (2.0, 3.0):
            score._Table__rows = draw(ROWS)
            self.same(score)

    def test_padded_head_dims_are_those_of_the_caller(self):
        q, k, v = (draw(1, ROWS, HEADS, 20) for _ in range(3))
        own = draw(HEADS).abs()
        for text in ("return score * (head_dim == 20 ? 2.0 : 1.0);",
                     attune.score_mod("return score * (head_dim == 20 ? 2.0 : t[head]);", t=own)):
            o, lse = attend(q, k, v, score_mod=text, pad_head_dim=True, return_lse=True)
            self.near(o, attend(q * 2, k, v, pad_head_dim=True))
            found = attune.attention_backward(o, q, k, v, o, lse, score_mod=text, pad_head_dim=True, **PLACE)
            for gradient, other, factor in zip(
                    found, attune.attention_backward(o, q * 2, k, v, o, lse, pad_head_dim=True, **PLACE), (2, 1, 1)):
                self.near(gradient, other * factor)
        self.assertEqual(
            attune.score_gradient("t", o, q, k, v, o, lse, score_mod=text, pad_head_dim=True,
                                  **PLACE).abs().max().item(), 0)
        self.near(attend(q, k, v, mask_mod="return kv_idx * 2 < head_dim;", pad_head_dim=True),
                  attend(q, k, v, mask_mod="return kv_idx < 10;", pad_head_dim=True))


class FunctionsTest(TracedTest):
    """Functions that the language lacks are composed of those it has. Whole tensors may take part."""

    def with_gradients(self, score, *tables, like=None):
        """Checks results of score(s, b, h, i, j, *tables), and gradients of q and the tables. `like` is the same
        function for indices with axes."""
        learned = [leaf(Q), *map(leaf, tables)]
        mod, other = (lambda s, b, h, i, j, function=one: function(s, b, h, i, j, *learned[1:])
                      for one in (score, like or score))
        found, want = attend(learned[0], K, V, score_mod=lambda *at: mod(*at)), wanted(other, q=learned[0])
        self.near(found, want)
        for one, other in zip(*(torch.autograd.grad(o.pow(2).sum(), learned) for o in (found, want))):
            self.assertLess((one - other).norm().item(), 2e-5 * (1 + other.norm().item()))

    def test_composed_functions(self):
        functional = torch.nn.functional
        for score in (lambda s, b, h, i, j: s * torch.sign(s + 0.1) + torch.sign(i - j) * 0.5 + (s > 0).sign() * 0.1,
                      lambda s, b, h, i, j: torch.log1p(s * s) + torch.log1p(s * s * 1e-4) * 1e3 + torch.log1p(
                          torch.sigmoid(s) * -0.9), lambda s, b, h, i, j: functional.softplus(s) + functional.softplus(
                              s * 30, beta=0.5, threshold=10) * 0.1,
                      lambda s, b, h, i, j: torch.erf(s) + torch.special.erf(s * 3) + (s - 5).erf(),
                      lambda s, b, h, i, j: functional.gelu(s) + functional.gelu(s * 2, approximate="tanh"),
                      lambda s, b, h, i, j: s + s.new_full((), 2.5) * j):
            self.with_gradients(score)
        ends = torch.tensor([-1e30, -9.0, -4.0, -1.0, -0.0, 1.0, 4.0, 9.0, 1e30])
        for function in (torch.erf, torch.sign, functional.softplus):
            self.same(lambda s, b, h, i, j: s + function(ends[(i + j) % 9]).clamp(max=20))
        with self.assertRaisesRegex(
                TypeError, r"torch\.cos is not in the score language; .*index a tensor of precomputed cos\(\) values"):
            attend(Q, K, V, score_mod=lambda s, b, h, i, j: s * torch.cos(j * 0.1))

    def test_whole_tensors(self):
        heads, table, ones = draw(HEADS), draw(HEADS, ROWS), draw(1, ROWS)
        self.with_gradients(lambda s, b, h, i, j, t: s * (t * 2)[h] + (1 - t.abs()).exp()[h], heads)
        self.with_gradients(lambda s, b, h, i, j, t: s + torch.maximum(t, t * j)[h], heads,
                            like=lambda s, b, h, i, j, t: s + torch.maximum(t[h], t[h] * j))
        self.with_gradients(
            lambda s, b, h, i, j, t: s + (t[h] * 0.5)[j] + (t.clamp(min=0) / 2)[h][i] + (t.float() * s)[h, j], table,
            like=lambda s, b, h, i, j, t: s + t[h, j] * 0.5 + t[h, i].clamp(min=0) / 2 + t[h, j] * s)
        self.with_gradients(lambda s, b, h, i, j, t, u: s + (t * u)[h, j] + torch.where(t > u, t, u)[h, i], table, ones)
        self.with_gradients(
            lambda s, b, h, i, j, t, u: s + t.expand(HEADS, ROWS)[h, j] * u.expand(3, -1, -1)[b, h, i] + t.expand_as(u)[
                h, i], ones, table)
        with self.assertRaisesRegex(
                TypeError,
                "heads with none of its 1 indices is expanded to .3, 5., but its shape .2,. does not broadcast"):
            attend(Q, K, V, score_mod=lambda s, b, h, i, j: s + heads.expand(3, 5)[h, j])
        with self.assertRaisesRegex(TypeError, "the result of an operation on heads .* is not a value yet"):
            attend(Q, K, V, score_mod=lambda s, b, h, i, j: s + heads * 2)
        table = leaf(table)

        def stopped(s, b, h, i, j):
            with torch.no_grad():
                twice = table * 2
            return s + twice[h, j]

        with self.assertRaisesRegex(ValueError, "score_mod computes with table behind detach or torch.no_grad"):
            attend(Q, K, V, score_mod=stopped)

    def test_indices_below_0_count_from_the_end(self):
        table = draw(HEADS, ROWS + 3)
        buckets = torch.arange(ROWS * 2) % 7 - 3
        for score in (lambda s, b, h, i, j, t: s + t[-1, j] + t[h, -2],
                      lambda s, b, h, i, j, t: s + t[h, j - 1] * t[h - 1, i],
                      lambda s, b, h, i, j, t: s + t[h, i - j + 2], lambda s, b, h, i, j, t: s + t[h, -j],
                      lambda s, b, h, i, j, t: s + t[h, buckets[i + j]], lambda s, b, h, i, j, t: s +
                      (t * 2)[-1, j - 2] + t[h, torch.minimum(j - 4, i)]):
            self.with_gradients(score, table)
        self.same(mask_mod=lambda b, h, i, j: (buckets[j - 3] >= 0) | (i == j))
        mod = attune.score_mod(lambda s, b, h, i, j: s + table[h, j - 1])
        want = wanted(lambda s, b, h, i, j: s + table[h, j - 1])
        self.near(torch.compile(lambda q: attend(q, K, V, score_mod=mod), fullgraph=True, backend="eager")(Q), want)
        texts = {
            attune.score_mod(lambda s, b, h, i, j: s + table[h, j - 1]).text
            for table in (table, draw(HEADS, 40), draw(HEADS, 50))}
        self.assertEqual(len(texts), 1)  # extents are numbers of the call: other ones need no new kernel

    def test_indices_that_are_never_below_0_cost_nothing(self):
        table, ids = draw(HEADS, 40), torch.arange(40, dtype=torch.uint8)
        for index in (lambda i, j: j, lambda i, j: i + j, lambda i, j: (j + 1) // 2 - 0, lambda i, j:
                      (i - j) % 7, lambda i, j:
                      (i - j).abs(), lambda i, j: torch.clamp(i - j, 0, 9), lambda i, j: torch.clamp(j - i, min=1) - 1,
                      lambda i, j: torch.where(i > j, i * 2, j), lambda i, j: ids[j], lambda i, j:
                      (i > j).int(), lambda i, j: (i - j) & 7, lambda i, j: (i + 3) % 5 + (j >> 1)):
            self.assertNotIn("scalar", attune.score_mod(lambda s, b, h, i, j: s + table[h, index(i, j)]).text)


class ChangesTest(TracedTest):
    def each_way(self, mod, want):
        """Checks calls: plain, recorded, with autocast's dtype, below a mode of dispatch."""
        self.near(attend(Q, K, V, score_mod=mod), want)
        self.near(attend(leaf(Q), K, V, score_mod=mod), want)
        with FlopCounterMode(display=False):
            self.near(attend(Q, K, V, score_mod=mod), want)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertLess((attend(Q, K, V, score_mod=mod) - want).abs().max().item(), 0.1)

    def test_mods_read_variables_anew_at_each_call(self):
        factor, table = 1.0, draw(HEADS)
        mod = attune.score_mod(lambda s, b, h, i, j: s * factor + table[h] * j)
        for factor in (4.0, -6.0):
            table = table * -2
            self.each_way(mod, wanted(lambda s, b, h, i, j: s * factor + table[h] * j))

    def test_a_rebound_parameter_has_its_gradient(self):
        table = torch.nn.Parameter(draw(HEADS))
        mod = attune.score_mod(lambda s, b, h, i, j: s * table[h])
        old, table = table, torch.nn.Parameter(draw(HEADS) + 1)
        attend(leaf(Q), K, V, score_mod=mod).pow(2).sum().backward()
        found, table.grad = table.grad, None
        wanted(lambda s, b, h, i, j: s * table[h]).pow(2).sum().backward()
        self.near(found, table.grad)
        self.assertIsNone(old.grad)

    def test_what_a_body_imports_and_asks_the_system_for_is_read_anew(self):
        settings = types.ModuleType("attune_test_settings")

        def by_module(s, b, h, i, j):
            import attune_test_settings
            return s * attune_test_settings.factor

        def by_name(s, b, h, i, j):
            from attune_test_settings import factor
            return s * factor

        scores = (by_module, by_name, lambda s, b, h, i, j: s * float(os.environ["ATTUNE_TEST_FACTOR"]),
                  lambda s, b, h, i, j: s * float(os.getenv("ATTUNE_TEST_FACTOR")),
                  lambda s, b, h, i, j: s * globals()["GLOBAL_FACTOR"],
                  lambda s, b, h, i, j: s * sys.modules["attune_test_settings"].factor)
        with mock.patch.dict(sys.modules, attune_test_settings=settings), mock.patch.dict(os.environ):
            for settings.factor in (2.0, 5.0):
                globals()["GLOBAL_FACTOR"] = settings.factor
                os.environ["ATTUNE_TEST_FACTOR"] = str(settings.factor)
                for score in scores:
                    self.near(attend(Q, K, V, score_mod=score), attend(Q * settings.factor, K, V))


class GradientsTest(TracedTest):
    def test_stopped_gradients_are_refused_where_they_are_wanted(self):
        table, q = leaf(draw(HEADS)), leaf(Q)

        @torch.no_grad()
        def fixed(x):
            return x * 2

        def with_scope(s, b, h, i, j):
            with torch.no_grad():
                own = table[h] * 2
            return s + own

        of_score = (lambda s, b, h, i, j: s + s.detach(), lambda s, b, h, i, j: s * torch.detach(s * 0.5),
                    lambda s, b, h, i, j: s + fixed(s))
        of_table = (lambda s, b, h, i, j: s + table[h].detach(), lambda s, b, h, i, j: s * table.detach()[h],
                    with_scope)
        for score in (*of_score, *of_table):
            with torch.no_grad():
                self.same(score)
        for given, refused, label in ((q, of_score, "the score"), (Q, of_table, "table"), (q, of_table, "table")):
            for score in refused:
                for mod in (score, attune.score_mod(score)):
                    with self.assertRaisesRegex(ValueError,
                                                f"score_mod computes with {label} behind detach or torch.no_grad"):
                        attend(given, K, V, score_mod=mod)
        with self.assertRaisesRegex(Exception, "score_mod computes with the score behind detach"):
            torch.compile(lambda q: attend(q, K, V, score_mod=of_score[0]), fullgraph=True, backend="eager")(q)
        with torch.no_grad():
            o, lse = attend(Q, K, V, score_mod=of_score[0], return_lse=True)
        with self.assertRaisesRegex(ValueError, "score_mod computes with the score behind detach"):
            attune.attention_backward(o, Q, K, V, o, lse, score_mod=of_score[0], **PLACE)
        with self.assertRaisesRegex(ValueError, "score_mod computes with table behind detach"), torch.no_grad():
            attune.score_gradient("table", o, Q, K, V, o, lse, score_mod=of_table[0], **PLACE)

    def test_a_detach_that_stops_no_gradient_is_the_identity(self):
        table, rows = leaf(draw(HEADS)), draw(ROWS)
        for score in (lambda s, b, h, i, j: s * (i * 0.5).detach() + j.detach(),
                      lambda s, b, h, i, j: torch.where(s.detach() > 0, s, s * table[h]),
                      lambda s, b, h, i, j: s * rows.detach()[j] + rows[i].detach() * table[h]):
            q = leaf(Q)
            found = torch.autograd.grad(attend(q, K, V, score_mod=score).pow(2).sum(), (q, table), allow_unused=True)
            want = torch.autograd.grad(wanted(score, q=q).pow(2).sum(), (q, table), allow_unused=True)
            for one, other in zip(found, want):
                self.assertEqual(one is None, other is None)
                if one is not None:
                    self.assertLess((one - other).norm().item(), 2e-5 * (1 + other.norm().item()))
        only = lambda s, b, h, i, j: s.detach() * table[h]  # noqa: E731
        found, = torch.autograd.grad(attend(Q, K, V, score_mod=only).pow(2).sum(), table)
        want, = torch.autograd.grad(wanted(only).pow(2).sum(), table)
        self.assertLess((found - want).norm().item(), 2e-5 * (1 + want.norm().item()))

    def test_gradients_are_asked_by_the_names_of_variables(self):
        t1, t0 = draw(HEADS), draw(HEADS, ROWS)[:, 0].contiguous()
        score = lambda s, b, h, i, j: s * t1[h] + t0[h] * j * 0.1  # noqa: E731
        mod, dout = attune.score_mod(score), draw(1, ROWS, HEADS, 16)
        o, lse = attend(Q, K, V, score_mod=score, return_lse=True)
        call = lambda of: attune.score_gradient(of, dout, Q, K, V, o, lse, score_mod=mod, **PLACE)  # noqa: E731
        t1, t0 = leaf(t1), leaf(t0)
        for name, want in zip(("t1", "t0"), torch.autograd.grad((wanted(score) * dout).sum(), (t1, t0))):
            t1, t0 = t1.detach(), t0.detach()
            self.near(call(name), want, name)
            with FlopCounterMode(display=False):
                self.near(call(name), want, name)
            self.near(torch.compile(call, fullgraph=True, backend="eager")(name), want, name)

    def test_tangents_of_what_a_score_mod_reads_are_refused(self):
        with forward.dual_level():
            table = forward.make_dual(draw(HEADS), torch.ones(HEADS))
            for q in (Q, leaf(Q)):
                with self.assertRaisesRegex(ValueError, "table has a tangent of torch.autograd.forward_ad"):
                    attend(q, K, V, score_mod=lambda s, b, h, i, j: s + table[h])
            with self.assertRaisesRegex(ValueError, "t has a tangent"):
                attend(Q, K, V, score_mod=attune.score_mod("return score + t[head];", t=table))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        gradient_cases.main()
