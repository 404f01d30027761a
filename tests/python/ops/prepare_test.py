#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""prepare(function, ...): plans of every op, of NumPy's arrays and of PyTorch's CPU tensors where PyTorch is; nothing
is computed or written. Also its names of version 0.2, which warn."""
import pickle
import unittest
import warnings

import numpy as np

import attune
import skips

try:
    import torch
except ImportError:
    torch = None

draw = lambda *shape: np.random.default_rng(0).standard_normal(shape, dtype=np.float32)  # noqa: E731


def calls_of(kind, columns):
    """Returns by name (function, arguments, keywords) of calls of each op. kind: makes tensors from arrays."""
    q, cache, rows = (kind(draw(*shape, columns)) for shape in ((1, 5, 2), (1, 8, 2), (5, 2)))
    out, caches = kind(draw(1, 5, 2, columns)), [kind(draw(1, 8, 2, columns)) for _ in "kv"]
    lse, bias, angles = kind(draw(1, 2, 5)), kind(draw(2, 5, 5)), kind(draw(8, 4))
    level = dict(k_cache=cache, v_cache=cache, q_begins=kind(np.array([0, 5], np.int32)), seqlen_q=5)
    gradients = tuple(kind(draw(1, 5, 2, columns)) for _ in "qkv")
    calls = {
        "attention": (attune.attention, (q, q, q), dict(out=out, return_lse=True)),
        "scores": (attune.attention, (q, q, q), dict(bias=bias, softcap=5.0, dropout_p=0.5, mask="causal")),
        "program": (attune.attention, (q, q, q), dict(mask_mod=lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)),
        "backward": (attune.attention_backward, (q, q, q, q, q, lse), dict(out=gradients, accumulate=columns == 16)),
        "score_gradient": (attune.score_gradient, ("bias", q, q, q, q, q, lse), dict(bias=bias)),
        "kvcache": (attune.attention_kvcache, (q, cache, cache), dict(out=out)),
        "append": (attune.append_kv, (q, q, *caches), dict(cos=angles, sin=angles, q=q, q_out=out))}
    if columns == 16:
        calls.update(merge=(attune.merge, (q, lse, q, lse), dict(out=out, lse_out=kind(draw(1, 2, 5)))),
                     quantise=(attune.quantise, (q, ), {}), cascade=(attune.cascade, (rows, [level, level]), {}))
    return calls


def tensors_in(values):
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from tensors_in(value)
        elif hasattr(value, "shape"):
            yield value


class PrepareTest(unittest.TestCase):
    def setUp(self):
        scope = warnings.catch_warnings()
        scope.__enter__()
        self.addCleanup(scope.__exit__, None, None, None)
        warnings.filterwarnings("ignore", message="attune copies")

    def test_plans_are_made_and_nothing_is_written(self):
        """Not before calls, nor after equal calls, which the C module repeats."""
        for kind in [np.asarray] + ([] if torch is None else [torch.from_numpy]):
            for columns in (16, 20):
                for name, (function, arguments, keywords) in calls_of(kind, columns).items():
                    given = [*tensors_in((*arguments, *keywords.values()))]
                    with self.subTest(name, columns=columns, kind=kind.__name__):
                        for times in (0, 3):
                            for _ in range(times if name != "scores" else 0):  # without a seed
                                function(*arguments, **keywords)
                            for x in given[-3:] if times else ():
                                x[...] = 1
                            before = [(np.asarray(x).copy(), getattr(x, "_version", 0)) for x in given]
                            found = attune.prepare(function, *arguments, **keywords)
                            plans = found if isinstance(found, list) else [found]
                            self.assertEqual([type(plan) for plan in plans], [attune.Plan] *
                                             (3 if name == "cascade" else 1))
                            for x, (values, version) in zip(given, before):
                                np.testing.assert_array_equal(np.asarray(x), values)
                                self.assertEqual(getattr(x, "_version", 0), version)

    @unittest.skipIf(torch is None, "there is no PyTorch")
    def test_other_signatures(self):
        """Functions of adapters, also of tensors that autograd would record, and below autocast."""
        import attune.flash
        import attune.flex
        import attune.sdpa
        first, q = torch.randn(1, 2, 5, 16, requires_grad=True), torch.randn(1, 5, 2, 16, requires_grad=True)
        caches, state = [torch.ones(1, 8, 2, 16) for _ in "kv"], torch.get_rng_state()
        for function, arguments, keywords, count in (
            (attune.sdpa.scaled_dot_product_attention, (first, ) * 3, dict(is_causal=True), 1),
            (attune.flex.flex_attention, (first, ) * 3, {}, 1),
            (attune.flash.flash_attn_func, (q, ) * 3, dict(causal=True, dropout_p=0.1), 1),
            (attune.flash.flash_attn_with_kvcache, (q.detach(), *caches, q.detach(), q.detach()),
             dict(cache_seqlens=2), 2)):
            with self.subTest(function.__name__):
                found = attune.prepare(function, *arguments, **keywords)
                self.assertEqual(len(found) if isinstance(found, list) else 1, count)
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertTrue(all(bool((cache == 1).all()) for cache in caches))
        with torch.autocast("cpu", torch.bfloat16):
            self.assertIn(" for dtype=bf16", repr(attune.prepare(attune.attention, q, q, q)))

    def test_refusals(self):
        q = draw(1, 5, 2, 16)
        plan = attune.Context("cpu", store="").plan("dtype=fp32,head_dim=16,heads=2,seqlen=5")
        refused = (np.add, print, unittest.TestCase, attune.version, attune.rotary_table, attune.Context, plan.run,
                   attune.prepare, attune.why, "attention", None, 3)
        for function in refused:
            with self.assertRaisesRegex(TypeError, "^function is .*; must be a function of attune"):
                attune.prepare(function, q)
        with self.assertRaisesRegex(ValueError, "^v has shape"):
            attune.prepare(attune.attention, q, q, q[:, :4])
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'softmax_scale'; softmax_scale is scale"):
            attune.prepare(attune.attention, q, q, q, softmax_scale=1.0)
        o = np.full_like(q, 7)
        attune.attention(q, q, q, out=o)  # calls run again after a refusal
        self.assertTrue((o != 7).all())

    def test_names_of_0_2(self):
        """The aliases give what prepare() gives, and name it in a DeprecationWarning of the calling line."""
        calls = calls_of(np.asarray, 16)
        for name, alias in (("attention", attune.prepare), ("kvcache", attune.prepare_kvcache),
                            ("append", attune.prepare_append_kv), ("merge", attune.prepare_merge),
                            ("quantise", attune.prepare_quantise), ("quantise", attune.prepare_quantize),
                            ("cascade", attune.prepare_cascade)):
            function, arguments, keywords = calls[name]
            with self.subTest(alias.__name__), warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found = alias(*arguments, **keywords)
                self.assertEqual(repr(found), repr(attune.prepare(function, *arguments, **keywords)))
                self.assertEqual([(one.category, one.filename) for one in told], [(DeprecationWarning, __file__)])
                self.assertIn(f"attune.prepare(attune.{function.__name__}, ...)", str(told[0].message))
                self.assertEqual(pickle.loads(pickle.dumps(alias)), alias)
        q = draw(1, 5, 2, 16)
        with self.assertWarns(DeprecationWarning):
            self.assertIsInstance(attune.prepare(q=q, k=q, v=q), attune.Plan)


if __name__ == "__main__":
    skips.run()
