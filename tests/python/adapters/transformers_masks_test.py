#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The functions that register_transformers() registers, by themselves: which features a mask becomes, and attention
under random masks, caches, paddings and score features against float64. The number of random calls may be given, and a
seed; "cuda" runs these alone, there. Skips aloud (status 77) without PyTorch, transformers or the CPU target."""
import copy
import inspect
import operator
import os
import pathlib
import pickle
import random
import re
import sys
import types
import unittest

import attune
from skips import skip, without_modules

with without_modules():
    import numpy as np
    import torch
    from transformers import masking_utils as masks
    attune.register_transformers()
    from attune.transformers.mask_rule import MaskRule
    from attune.transformers.attention import attention_forward
    from attune.transformers.masks import ASK_FOR_BLOCK_MASKS, attune_mask

FROM_POSITIONS = "cache_position" in inspect.signature(masks.sdpa_mask).parameters  # transformers 4.5x
COUNT, SEED, DEVICE = 4, 5, "cpu"
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def rule(rows, keys=None, **given):
    """Returns attune_mask()'s result, called with the arguments of the installed transformers."""
    sizes = {"batch_size": given.pop("batch", 2), "kv_length": rows if keys is None else keys}
    if FROM_POSITIONS:
        return attune_mask(cache_position=torch.arange(rows, device=DEVICE) + given.pop("q_offset", 0), **sizes,
                           **given)
    return attune_mask(q_length=rows, device=DEVICE, **sizes, **given)


def keep(batch, keys, hidden, value=False):
    mask = torch.full((batch, keys), not value)
    mask[-1, hidden] = value
    return mask


def window(size):
    return masks.and_masks(masks.sliding_window_overlay(size), masks.causal_mask_function)


def chunked(size, left_padding):
    return masks.and_masks(masks.chunked_overlay(size, left_padding), masks.causal_mask_function)


def images(ids):
    """Causal, but the tokens of one image (ids above 0) see each other."""
    def same_image(batch, head, q_idx, kv_idx):
        return (ids[batch, q_idx] == ids[batch, kv_idx]) & (ids[batch, q_idx] > 0)
    return masks.or_masks(masks.causal_mask_function, same_image)


def untraceable(batch, head, q_idx, kv_idx):
    return torch.isclose(((q_idx - kv_idx) % 3).double(), torch.zeros(
        (), dtype=torch.float64, device=q_idx.device)) & (kv_idx <= q_idx)


class FeaturesTest(unittest.TestCase):
    """No request of transformers becomes a tensor of rows and keys if a feature can say it."""

    def check(self, given, names, keys=None):
        self.assertEqual((sorted(given.keywords), given.keys), (sorted(names), keys))
        return given.keywords

    def test_causal(self):
        self.assertEqual(self.check(rule(9), ["mask"])["mask"], "causal_bottom_right")
        self.check(rule(9, 20, q_offset=11), ["mask"])            # a cache of 11
        self.check(rule(9, 64, q_offset=11), ["mask"], (0, 20))   # in a static cache of 64
        self.check(rule(9, 64, q_offset=torch.tensor(11)), ["mask"], (0, 20))
        self.check(rule(1, 64, q_offset=63), [])
        self.check(rule(1, 64, q_offset=20), [], (0, 21))
        on_device = attune_mask(2, q_length=1, kv_length=64, q_offset=torch.tensor(20),
                                device="cpu")  # a static cache of transformers 5
        self.assertEqual(self.check(on_device, ["key_lengths"])["key_lengths"].tolist(), [21, 21])

    def test_windows(self):
        self.assertEqual(self.check(rule(9, mask_function=window(4)), ["mask", "window"])["window"], (3, None))
        self.check(rule(9, mask_function=window(9)), ["mask"])    # hides nothing
        self.check(rule(1, 64, q_offset=63, mask_function=window(4)), [], (60, 64))
        self.check(rule(2, 5, q_offset=10, kv_offset=7, mask_function=window(4)),
                   ["mask", "window"])  # a cache of the last 3
        both = getattr(masks, "sliding_window_bidirectional_mask_function", None)
        if both:
            self.assertEqual(self.check(rule(9, mask_function=both(3)), ["window"])["window"], (3, 3))

    def test_padding(self):
        left, right, holes = keep(2, 9, slice(0, 3)), keep(2, 9, slice(6, 9)), keep(2, 9, slice(4, 6))
        self.check(rule(9, attention_mask=torch.ones(2, 9, dtype=torch.bool)), ["mask"])
        self.assertEqual(
            self.check(rule(9, attention_mask=right), ["key_lengths", "mask"])["key_lengths"].tolist(), [9, 6])
        self.assertIn("starts", self.check(rule(9, attention_mask=left), ["mask", "mask_mod"])["mask_mod"].text)
        self.check(rule(9, attention_mask=left & right), ["key_lengths", "mask", "mask_mod"])
        self.assertEqual(
            self.check(rule(9, attention_mask=holes), ["mask", "mask_tensor"])["mask_tensor"].shape, (2, 1, 1, 9))
        self.check(rule(9, 64, attention_mask=right), ["key_lengths", "mask"],
                   (0, 9))  # a static cache holds no other keys
        self.check(rule(1, 9, q_offset=8, attention_mask=right.flip(1)), ["mask_mod"])

    def test_chunks(self):
        zeros = torch.zeros(2, dtype=torch.int64)
        self.assertEqual(self.check(rule(9, mask_function=chunked(4, zeros)), ["chunk", "mask"])["chunk"], 4)
        self.check(rule(9, mask_function=chunked(9, zeros)), ["mask"])
        self.check(rule(9, mask_function=chunked(4, torch.tensor([0, 3])), attention_mask=keep(2, 9, slice(0, 3))),
                   ["mask", "mask_mod"])
        self.check(rule(1, 9, q_offset=8, mask_function=chunked(4, zeros)), [], (8, 9))

    def test_documents_and_programs(self):
        ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2]] * 2)
        positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1]] * 2)
        packed = masks.and_masks(masks.causal_mask_function, masks.packed_sequence_mask_function(ids))
        self.check(rule(9, mask_function=packed), ["documents", "mask"])
        self.check(
            rule(
                9, mask_function=masks.and_masks(masks.causal_mask_function,
                                                 masks.packed_sequence_mask_function(ids * 0))), ["mask"])
        if hasattr(masks, "packed_sequence_compatibility_function"):
            self.check(rule(9, mask_function=masks.packed_sequence_compatibility_function(window(2), positions, ids)),
                       ["documents", "mask", "window"])
        self.check(rule(9, mask_function=images(ids)), ["mask_mod"])
        self.check(rule(9, mask_function=untraceable), ["mask_tensor"])

    def test_bidirectional(self):
        if hasattr(masks, "bidirectional_mask_function"):
            self.check(rule(5, 9, mask_function=masks.bidirectional_mask_function), [])
            self.check(
                rule(5, 9, mask_function=masks.bidirectional_mask_function, attention_mask=keep(2, 9, slice(6, 9))),
                ["key_lengths"])

    def test_what_a_rule_is(self):
        one = rule(9, attention_mask=keep(2, 9, slice(6, 9)))
        self.assertEqual((one.shape, one.ndim, one.contiguous() is one), ((2, 1, 9, 9), 4, True))
        self.assertIs(one.to("cpu"), one)
        self.assertEqual(one.to("meta").keywords["key_lengths"].device.type, "meta")
        program = rule(9, attention_mask=keep(2, 9, slice(0, 3))).to("meta", non_blocking=True).keywords["mask_mod"]
        self.assertEqual([tensor.device.type for _, tensor in program.bind().captures.values()], ["meta"])
        self.assertIs(one.bool().contiguous().detach().to(device="cpu"), one)

    def test_a_rule_used_as_a_tensor_is_one(self):
        one = rule(9, attention_mask=keep(2, 9, slice(6, 9)))
        seen = (torch.ones(9, 9, dtype=torch.bool).tril() & keep(2, 9, slice(6, 9))[:, None, None]).clone()
        other, bias = torch.rand(2, 1, 9, 9) < 0.5, torch.randn(2, 4, 9, 9)
        uses = {
            "index": lambda x: x[:, 0, :, :3], "invert": lambda x: ~x, "and": lambda x: x & other,
            "and, behind": lambda x: other & x, "or": lambda x: other | x, "equal": lambda x: x == True,
            "repeat": lambda x: x.repeat(1, 4, 1, 1), "expand": lambda x: x.expand(2, 4, 9, 9),
            "negated": lambda x: x.logical_not(), "cat": lambda x: torch.cat([x, other, x], -1),
            "where": lambda x: torch.where(x, 0.0, -1.0), "all": lambda x: torch.all(~x, dim=2),
            "float": lambda x: x.to(torch.float32), "pad": lambda x: torch.nn.functional.pad(x, (0, 3)),
            "fill": lambda x: bias.masked_fill(x, 2.0), "fill in place": lambda x: bias.clone().masked_fill_(x, 2.0),
            "named": lambda x: torch.logical_and(input=x, other=other), "a sum of masks": lambda x: x + x,
            "product": lambda x: 2.0 * x, "len": lambda x: torch.tensor(len(x)), "kind": lambda x: torch.tensor(
                (x.dtype == torch.bool, x.is_floating_point(), x.numel(), x.size(-1), x.dim())),
            "any": lambda x: x.any(-1), "float method": lambda x: x.float(), "copy": lambda x: x.clone().fill_(False),
            "dtype and device": lambda x: x.to("cpu", torch.float16), "unsqueeze": lambda x: torch.unsqueeze(x, 0),
            "rows": lambda x: list(x)[1],
            "quotient": lambda x: x // 1, "remainder": lambda x: x % 2, "power": lambda x: 2 ** x,
            "dense": lambda x: x.to_dense(), "as_tensor": torch.as_tensor,
            "array": lambda x: torch.tensor(np.asarray(x)), "pickled": lambda x: pickle.loads(pickle.dumps(x)),
            "numel": lambda x: torch.tensor(x.shape.numel()), "copied": lambda x: copy.copy(x).clone()}
        for name, use in uses.items():
            with self.subTest(name):
                found = use(one)
                self.assertIs(type(found), torch.Tensor)
                self.assertTrue(torch.equal(found, use(seen)))
        passed_on = rule(9)
        self.assertEqual((passed_on.dtype, passed_on.size(), passed_on.device.type), (torch.bool, (2, 1, 9, 9), "cpu"))
        self.assertIsNone(passed_on._made)
        with self.assertRaisesRegex(RuntimeError, "ambiguous"):
            bool(one)
        with self.assertRaises(IndexError):  # PyTorch treats an index that is not a tensor as a sequence
            other[one]
        for write in (lambda: one.__setitem__(0, True), lambda: one.fill_(True), lambda: one.masked_fill_(other, True),
                      lambda: operator.iand(one, other), lambda: operator.iadd(one, bias)):
            with self.assertRaisesRegex(TypeError, "writes into its attention mask"):
                write()
        with self.assertRaisesRegex(AttributeError, "has no nonsense"):
            one.nonsense

    def test_a_view_of_a_rule_that_is_written(self):
        """Then the tensor counts, as with transformers' own mask."""
        one, (q, k, v) = rule(9), (torch.randn(2, 4, 9, 32) for _ in range(3))
        one[:, :, 3:5].fill_(True)
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, one.tensor()).transpose(1, 2)
        self.assertTrue(torch.allclose(attention_forward(torch.nn.Module(), q, k, v, one)[0], want, atol=1e-5))

    def test_a_rule_beside_a_bias(self):
        """Models with their own position biases add the mask to them (BEiT)."""
        bias = torch.randn(1, 4, 9, 9)
        for given in ({}, {"attention_mask": keep(2, 9, slice(0, 3))}, {
                "attention_mask": keep(2, 9, slice(6, 9)), "mask_function": window(4)}):
            one = rule(9, **given)
            seen = masks.sdpa_mask(2, **({"cache_position": torch.arange(9)} if FROM_POSITIONS else {"q_length": 9}),
                                   kv_length=9, allow_is_causal_skip=False, **given)
            written = bias.expand(seen.shape[0], -1, -1, -1).clone()
            written += one
            into = torch.empty_like(written)
            for added in (bias + one, one + bias, torch.add(bias, one), written, torch.add(bias, other=one),
                          torch.add(bias, one, alpha=1), torch.add(one, bias), bias.add(one, alpha=1), one.add(bias),
                          bias.add(other=one), torch.add(bias, one, out=into), into, sum([bias, one]),
                          bias.expand_as(written).clone().add_(one, alpha=1)):
                self.assertTrue(
                    torch.equal(added, bias + torch.zeros(seen.shape).masked_fill(~seen,
                                                                                  torch.finfo(torch.float32).min)))
            for add in (torch.add, torch.Tensor.add):
                with self.assertRaisesRegex(TypeError, "alpha is 2.0 .* must be 1"):
                    add(bias, one, alpha=2.0)
        all_seen = rule(1, 9, q_offset=8)
        self.assertIs(bias + all_seen, bias)

    def test_models_that_ask_for_block_masks(self):
        """They get a tensor. This finds those that a release of transformers adds."""
        tensor = rule(9, config=types.SimpleNamespace(model_type="doge"), q_offset=2, keys=11, attention_mask=keep(
            2, 11, slice(0, 3)))
        want = torch.ones(9, 11, dtype=torch.bool).tril(2) & keep(2, 11, slice(0, 3))[:, None, None, :]
        self.assertTrue(torch.equal(tensor, want))
        models = pathlib.Path(masks.__file__).parent / "models"
        asking = {
            file.parent.name
            for file in models.glob("*/model*.py") if re.search(r"isinstance\(.*BlockMask", file.read_text())}
        self.assertLessEqual(asking, ASK_FOR_BLOCK_MASKS)


class CallsTest(unittest.TestCase):
    """Masks without a rule, and refusals."""

    def setUp(self):
        torch.manual_seed(1)
        self.q, self.k, self.v = (torch.randn(1, heads, 9, 32) for heads in (4, 2, 2))
        self.module = torch.nn.Module()
        self.module.is_causal = True

    def run_with(self, mask=None, q=None, **given):
        return attention_forward(self.module, self.q if q is None else q, self.k, self.v, mask, **given)[0]

    def sdpa(self, **given):
        return torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, enable_gqa=True,
                                                                **given).transpose(1, 2)

    def near(self, got, want):
        self.assertLess((got - want).abs().max().item(), 2e-5)

    def test_without_a_mask(self):
        self.near(self.run_with(), self.sdpa(is_causal=True))
        self.near(self.run_with(is_causal=False), self.sdpa())
        self.near(self.run_with(q=self.q[:, :, -1:]), self.sdpa(is_causal=True)[:, -1:])
        seen = torch.ones(9, 9, dtype=torch.bool).tril() & ~torch.ones(9, 9, dtype=torch.bool).tril(-3)
        self.near(self.run_with(sliding_window=3), self.sdpa(attn_mask=seen))
        with self.assertRaisesRegex(ValueError, "attention_mask is None for 5 rows and 9 keys of a causal module"):
            self.run_with(q=self.q[:, :, :5])

    def test_sequences_in_one_row(self):
        ends = torch.tensor([0, 4, 9], dtype=torch.int32)
        ids = torch.tensor([0] * 4 + [1] * 5)
        seen = (ids[:, None] == ids) & torch.ones(9, 9, dtype=torch.bool).tril()
        self.near(self.run_with(cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=5), self.sdpa(attn_mask=seen))

    def test_tensors(self):
        seen = torch.rand(1, 1, 9, 9, generator=torch.Generator().manual_seed(1)) < 0.7
        seen[..., 0] = True
        added = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        want = self.sdpa(attn_mask=seen)
        for mask in (seen, added, torch.cat([seen, ~seen], 3)):
            self.near(self.run_with(mask), want)
        bias = torch.randn(1, 4, 9, 9)
        for mask in (seen, added):
            self.near(self.run_with(mask, position_bias=bias),
                      self.sdpa(attn_mask=bias.masked_fill(~seen, float("-inf"))))
        for wrong in (seen[0], seen.long(), torch.ones(1, 9), "causal"):
            with self.assertRaisesRegex(ValueError, "attention_mask is .*; must be None"):
                self.run_with(wrong)

    def test_a_mask_of_one_key_is_that_of_all(self):
        """Masks of models whose first layer has no keys (MiniMax), as sdpa repeats them."""
        q = torch.cat([self.q[:, :, :1]] * 2)
        self.k, self.v = (torch.cat([x, x + 1]) for x in (self.k, self.v))
        want = torch.nn.functional.scaled_dot_product_attention(q, self.k, self.v, enable_gqa=True).transpose(1, 2)
        self.near(self.run_with(rule(1, 1), q), want)
        hidden = self.run_with(rule(1, 1, attention_mask=keep(2, 1, slice(0, 1))), q)
        self.near(hidden, want * torch.tensor([1.0, 0.0])[:, None, None, None])

    def test_chosen_keys(self):
        """indices of models with an indexer (AXK2, GLM's and DeepSeek's sparse attention); below 0: none."""
        indices = torch.stack([torch.randperm(9)[:4] for _ in range(9)])[None]
        chosen = torch.zeros(1, 1, 9, 9, dtype=torch.bool).scatter(-1, indices[None], True)
        chosen[0, 0, 0, indices[0, 0, 0]], indices[0, 0, 0] = False, -1
        seen = torch.ones(9, 9, dtype=torch.bool).tril() & chosen
        want = self.sdpa(attn_mask=seen) * seen.any(-1)[0, 0, :, None, None]
        self.near(self.run_with(indices=indices), want)
        padded = keep(1, 9, slice(6, 9))
        for mask in (rule(9, batch=1), torch.ones(9, 9, dtype=torch.bool).tril()[None, None], torch.zeros(
                1, 1, 9, 9).masked_fill(~torch.ones(9, 9, dtype=torch.bool).tril(), -1e38)):
            self.near(self.run_with(mask, indices=indices.int()), want)
        cut = rule(9, 12, batch=1, attention_mask=padded)
        self.assertIsNotNone(cut.keys)
        self.k, self.v = (torch.nn.functional.pad(x, (0, 0, 0, 3), value=3.0) for x in (self.k, self.v))
        seen = torch.nn.functional.pad(seen & padded[:, None, None], (0, 3))
        self.near(self.run_with(cut, indices=indices),
                  self.sdpa(attn_mask=seen).nan_to_num(0) * seen.any(-1)[0, 0, :, None, None])

    def test_refusals(self):
        for given, sentence in (({
                "dropout": 1.5}, "dropout_p is 1.5"), ({"output_attentions": True}, "output_attentions is set"), ({
                    "head_mask": torch.ones(4)}, "head_mask is given"), ({
                        "block_indices": torch.ones(4)}, "block_indices is given")):
            with self.assertRaisesRegex(ValueError, sentence):
                self.run_with(**given)
        with self.assertRaisesRegex(ValueError, "key has 9 positions and the attention mask is of 12"):
            self.run_with(rule(9, 12, q_offset=3))
        self.run_with(head_mask=None, position_ids=torch.arange(9))


class RandomTest(unittest.TestCase):
    def test_against_float64(self):
        for seed in range(SEED, SEED + COUNT):
            with self.subTest(seed=seed):
                self.one(random.Random(seed), torch.Generator().manual_seed(seed))

    def one(self, rng, drawn):
        batch, heads_kv, head_dim = rng.choice((1, 2, 3)), rng.choice((1, 2)), 64
        heads = heads_kv * rng.choice((1, 3, 4))
        place = rng.choice(("prefill", "chunked prefill", "static", "window cache", "decode", "static decode"))
        rows = 1 if "decode" in place else rng.randint(2, 70)
        kind, mask_function, row0, key0, keys = self.mask(rng, drawn, place, batch, rows)
        side = rng.choice(("none", "left", "right", "both", "holes")) if kind != "packed" else "none"
        padding = self.padding(rng, side, batch, row0 + rows)
        if kind == "chunked":
            left = torch.zeros(batch, dtype=torch.int64, device=DEVICE) if padding is None else (padding.cumsum(1)
                                                                                                 == 0).sum(1)
            mask_function = chunked(13, left)
        as_tensor = "static" in place and rng.random() < 0.5
        given = rule(rows, keys, batch=batch, q_offset=torch.tensor(row0, device=DEVICE) if as_tensor else row0,
                     kv_offset=key0, mask_function=mask_function, attention_mask=padding)
        seen = self.seen(batch, rows, keys, row0, key0, mask_function, padding)
        dtype = rng.choice(tuple(TOLERANCE))
        q, k, v = (self.operand(rng, drawn, (batch, h, s, head_dim), dtype)
                   for h, s in ((heads, rows), (heads_kv, keys), (heads_kv, keys)))
        scores = {"scaling": rng.choice((None, 0.2))}
        if rng.random() < 0.3:
            scores["softcap"] = 3.0
        if rng.random() < 0.3:
            scores["s_aux"] = torch.randn(heads, generator=drawn).to(DEVICE, dtype)
        if rng.random() < 0.3:
            scores["position_bias"] = torch.randn(rng.choice((1, batch)), heads, rows, keys, generator=drawn).to(
                DEVICE, dtype)
        got, weights = attention_forward(torch.nn.Module(), q, k, v, given, sliding_window=7, **scores)
        self.assertIsNone(weights)
        want = self.want(q, k, v, seen, **scores)
        what = f"{kind}, {place}, padded {side}, {rows} rows, {keys} keys, {dtype}, {', '.join(scores)}: {given}"
        self.assertEqual((got.shape, got.dtype, got.is_contiguous()), (want.shape, dtype, True), what)
        self.assertLess((got.double() - want).abs().max().item(), TOLERANCE[dtype] * max(1.0,
                                                                                         want.abs().max().item()), what)

    def mask(self, rng, drawn, place, batch, rows):
        row0 = {"prefill": 0, "static": rng.choice((0, 9))}.get(place, rng.randint(1, 50))
        key0 = rng.randint(1, row0) if place == "window cache" else 0
        keys = row0 + rows - key0 + (rng.randint(1, 40) if "static" in place else 0)
        ids = torch.randint(0, 3, (batch, key0 + keys), generator=drawn).to(DEVICE)
        kinds = {
            "causal": masks.causal_mask_function, "window": window(rng.choice(
                (1, 8, 500))), "chunked": None, "images": images(ids), "program": masks.and_masks(
                    masks.causal_mask_function, lambda b, h, q, k: (q - k) % 3 != 1), "untraceable": untraceable}
        if place == "prefill":
            kinds["packed"] = masks.and_masks(masks.packed_sequence_mask_function(ids.sort(1)[0]), window(6))
            if hasattr(masks, "bidirectional_mask_function"):
                kinds["bidirectional"] = masks.bidirectional_mask_function
                kinds["bidirectional window"] = masks.sliding_window_bidirectional_mask_function(5)
        kind = rng.choice(sorted(kinds))
        return kind, kinds[kind], row0, key0, keys

    def padding(self, rng, side, batch, keys):
        if side == "none":
            return None
        mask = torch.ones(batch, keys, dtype=torch.bool)
        for i in range(batch):
            count = rng.randint(0, keys // 2)
            if side in ("left", "both"):
                mask[i, :count] = False
            if side in ("right", "both"):
                mask[i, keys - count // 2:] = False
            if side == "holes":
                mask[i, torch.randperm(keys)[:count]] = False
        return mask.to(DEVICE)

    def seen(self, batch, rows, keys, row0, key0, mask_function, padding):
        at = lambda start, count, axis: (torch.arange(count, device=DEVICE) + start).view([
            -1 if i == axis else 1 for i in range(4)])
        seen = mask_function(at(0, batch, 0), at(0, 1, 1), at(row0, rows, 2), at(key0, keys, 3)).expand(
            batch, 1, rows, keys)
        if padding is not None:
            whole = torch.nn.functional.pad(padding, (0, max(0, key0 + keys - padding.shape[1])))
            seen = seen & whole[:, None, None, key0:key0 + keys]
        return seen

    def operand(self, rng, drawn, shape, dtype):
        batch, heads, rows, head_dim = shape
        layout = rng.choice(("heads first", "rows first", "fused"))
        if layout == "heads first":
            return torch.randn(shape, generator=drawn).to(DEVICE, dtype)
        wide = torch.randn(batch, rows, heads * (3 if layout == "fused" else 1), head_dim, generator=drawn).to(
            DEVICE, dtype)
        return wide[:, :, :heads].transpose(1, 2)

    def want(self, q, k, v, seen, scaling=None, softcap=None, s_aux=None, position_bias=None):
        group = q.shape[1] // k.shape[1]
        q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
        scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scaling is None else scaling)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        if position_bias is not None:
            scores = scores + position_bias.double()
        scores = scores.masked_fill(~seen, float("-inf"))
        if s_aux is not None:
            scores = torch.cat([scores, s_aux.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], 3)
        weights = scores.softmax(3).nan_to_num(0.0)[..., :k.shape[2]]  # rows that see nothing are 0
        return (weights @ v).transpose(1, 2)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""  # nothing of the user's is read or written
    numbers = [int(one) for one in sys.argv[1:] if one.isdigit()]
    sys.argv = [one for one in sys.argv if not one.isdigit()]
    COUNT, SEED = (*numbers, *(COUNT, SEED)[len(numbers):])
    if "cuda" in sys.argv:
        if not torch.cuda.is_available():
            skip("PyTorch sees no GPU here")
        DEVICE, TOLERANCE[torch.float32] = "cuda", 1e-4  # three products of tf32
        sys.argv[sys.argv.index("cuda")] = "RandomTest"
    try:
        attune.Context(DEVICE, store="")
    except attune.Error as error:
        skip(f"no {DEVICE} target: {error}")
    unittest.main()
