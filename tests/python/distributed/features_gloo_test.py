#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The features of attention() in groups of two and four ranks over gloo. Each keyword is served, with results and
gradients as on one rank, or refused by name. Dropout drops the same weights on any number of ranks. Starts the
processes itself. Skips aloud (status 77) without PyTorch, gloo or the CPU target."""

from skips import torch

import attune
import attune.distributed as ad
from attune.distributed import features as table
from attune.ops.attention import DEFAULTS
import ranks

WORLD, HEADS, HEAD_DIM = 4, (4, 4), 16
SEED = 2 ** 40 + 7


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def bend(score, b, h, q_idx, kv_idx):
    return score * 0.5 + (q_idx - kv_idx) * 0.01


def stripes(b, h, q_idx, kv_idx):
    return (q_idx + kv_idx) % 3 > 0


def features_of(seqlen, batch, heads):
    """Returns the served features, several a call: keywords for the whole."""
    lengths = torch.tensor([seqlen - 37, seqlen // 2][:batch], dtype=torch.int32)
    numbers = (torch.arange(seqlen) // 90).to(torch.int32).expand(batch, -1)
    return {
        "bias": dict(bias=draw(batch, heads, seqlen, seqlen), key_lengths=lengths, softcap=2.0, scale=0.3,
                     mask="causal", accuracy="accurate", deterministic=True, pad_head_dim=True),
        "heads": dict(alibi_slopes=draw(batch, heads).abs(), sinks=draw(heads), documents=numbers, is_causal=True),
        "distances": dict(relative_bias=draw(heads, 2 * seqlen - 1), window=(100, 40),
                          mask_tensor=draw(batch, 1, seqlen, seqlen) > 0),
        "dropout": dict(dropout_p=0.3, seed=SEED, offset=torch.tensor([9]), mask="causal", context="cpu:1"),
        "programs": dict(score_mod=bend, mask_mod=stripes, chunk=100, mask="causal"),
        "prefix": dict(prefix=lengths)}


class RankTest(ranks.WithGroups):
    def compare(self, world, algorithm, choices, *, seqlen=520, batch=1, heads=HEADS, kind="auto", wanted=None,
                head_dim=HEAD_DIM):
        """Compares o, lse and all gradients of a group with those of one rank, attune.attention()'s or wanted."""
        group = self.groups[world]
        if group is None:
            return
        layout = group.layout(seqlen, mask=choices.get("mask"), window=choices.get("window"), kind=kind)
        whole = [draw(batch, seqlen, number, head_dim, seed=place)
                 for place, number in enumerate((heads[0], heads[1], heads[1]))]
        dout, dlse = draw(batch, seqlen, heads[0], head_dim, seed=5), draw(batch, heads[0], seqlen, seed=6)
        learned = [name for name in table.LEARNED if name in choices]

        def run(function, share, **call):
            x = [share(one, 1).clone().requires_grad_() for one in whole]
            given = {name: share(one, 2) if name in table.OF_ROWS and one.shape[2] > 1 else one
                     for name, one in choices.items()}
            given.update({name: given[name].clone().requires_grad_() for name in learned})
            o, lse = function(*x, return_lse=True, **{"context": "cpu:1", **given}, **call)
            ((o * share(dout, 1)).sum() + (lse * share(dlse, 2)).sum()).backward()
            return [o, lse, *(one.grad for one in x)], {name: given[name].grad for name in learned}

        expected, of_features = run(attune.attention, lambda x, axis: x)
        found, of_mine = run(ad.attention, layout.shard, group=group, layout=layout, algorithm=algorithm)
        for name, axis, x, y in zip(("o", "lse", "dq", "dk", "dv"), (1, 2, 1, 1, 1), found, expected):
            self.close(name, x, layout.shard(y, axis))
        for name, x in of_mine.items():
            if name in table.OF_ROWS and choices[name].shape[2] > 1:
                self.close(name, x, layout.shard(of_features[name], 2))
            else:  # each rank has its part
                self.close(name, sum(group.gather_parts(x, (x.shape[0],) * world)), of_features[name])

    def close(self, name, found, wanted):
        self.assertEqual(found.shape, wanted.shape, name)
        if found.numel():
            known = wanted.isfinite()
            self.assertTrue(torch.equal(found[~known], wanted[~known]), name)
            limit = 3e-5 * max(1.0, wanted[known].abs().max().item() if known.any() else 0)
            self.assertLess((found[known] - wanted[known]).abs().max().item() if known.any() else 0, limit, name)

    # Names give the order, in which all ranks must run the tests.

    def test_1_each_keyword_is_served_or_refused(self):
        served = {name for call in features_of(8, 1, 4).values() for name in call}
        self.assertEqual(served, table.SERVED)
        self.assertEqual(served | {*table.REFUSED, "return_lse"}, {*DEFAULTS})
        group = self.groups[WORLD]
        layout = group.layout(512)
        q, k, v = (layout.shard(draw(1, 512, 4, HEAD_DIM)) for _ in range(3))
        for name in table.REFUSED:
            message = f"{name} is given, and a group does not serve it: .*; must be left"
            with self.assertRaisesRegex(ValueError, message):
                ad.attention(q, k, v, group=group, layout=layout, **{name: "rows" if name == "scale_block" else 1})

    def test_2_gather_serves_the_table(self):
        for name, choices in features_of(520, 1, 4).items():
            if name != "prefix":
                self.compare(2, "gather", choices, kind="contiguous" if name == "programs" else "zigzag")
        choices = features_of(520, 2, 4)
        self.compare(4, "gather", {**choices["bias"], **choices["dropout"]}, batch=2)

    def test_3_exchange_serves_the_table(self):
        for choices in features_of(300, 2, 4).values():
            self.compare(4, "exchange", choices, seqlen=300, batch=2, kind="contiguous")

    def test_4_biases_that_broadcast(self):
        for algorithm, shape in (("exchange", (1, 1, 300, 300)), ("exchange", (2, 4, 1, 300)),
                                 ("gather", (1, 4, 1, 1))):
            self.compare(2, algorithm, dict(bias=draw(*shape), mask="causal"), seqlen=300, batch=2)

    def test_5_what_an_algorithm_cannot_serve_is_refused(self):
        group = self.groups[WORLD]
        layout, packed = group.layout(512), group.layout(512, documents=(0, 100, 512))
        q, k, v = (layout.shard(draw(1, 512, 4, HEAD_DIM)) for _ in range(3))
        call, prefix = dict(group=group, layout=layout), torch.tensor([3], dtype=torch.int32)
        for choices, words in ((dict(prefix=prefix, algorithm="gather"), "must have algorithm='exchange'"),
                               (dict(bias=torch.zeros(1, 1, 5, 512)), "bias has shape .*Axes of 1"),
                               (dict(key_lengths=[3]), "key_lengths has 1 tensors|key_lengths must be a PyTorch"),
                               (dict(dropout_p=0.2, seed=torch.tensor(1.0)), "seed is torch.float32")):
            with self.assertRaisesRegex(ValueError, words):
                ad.attention(q, k, v, **call, **choices)
        q, k, v = (packed.shard(draw(1, 512, 4, HEAD_DIM)) for _ in range(3))
        with self.assertRaisesRegex(ValueError, "prefix is given with packed documents"):
            ad.attention(q, k, v, group=group, layout=packed, prefix=prefix)

    def kept(self, group, layout, algorithm, seqlen, **choices):
        """Returns the weights that a group keeps, bool [batch, heads, rows, keys]: v is the unit matrix."""
        q, k = (torch.zeros(2, layout.length, 4, HEAD_DIM) for _ in range(2))
        v = layout.shard(torch.eye(seqlen)[None, :, None].expand(2, -1, 4, -1))
        o = ad.attention(q, k, v, group=group, layout=layout, algorithm=algorithm, context="cpu:1", **choices)
        return (layout.unshard(o) != 0).transpose(1, 2)

    def test_6_dropout_drops_what_one_rank_drops(self):
        seqlen = 288
        mask = attune.dropout_mask((2, 4, seqlen, seqlen), 0.4, SEED, 5, like=torch.zeros(1))
        distance = torch.arange(seqlen)[:, None] - torch.arange(seqlen)
        for world in (2, 4):
            group = self.groups[world]
            if group is None:
                continue
            for kind, window in (("zigzag", None), ("contiguous", (50, 0)), ("balanced", (77, 3))):
                layout = group.layout(seqlen, kind=kind)
                seen = torch.ones(seqlen, seqlen, dtype=torch.bool) if window is None else (
                    distance <= window[0]) & (-distance <= window[1])
                for algorithm in ("gather", "exchange"):
                    found = self.kept(group, layout, algorithm, seqlen, window=window, dropout_p=0.4, seed=SEED,
                                      offset=5)
                    self.assertTrue(torch.equal(found, mask & seen), (world, kind, algorithm))

    def test_7_dropout_of_documents_is_the_same_for_any_ranks_and_layout(self):
        documents, seqlen, found = (0, 41, 41, 205, 288), 288, []
        for world in (2, 4):
            group = self.groups[world]
            for kind in ("contiguous", "zigzag") if group is not None else ():
                layout = group.layout(seqlen, documents=documents, kind=kind)
                for algorithm in ("gather", "exchange"):
                    found.append(self.kept(group, layout, algorithm, seqlen, mask="causal", dropout_p=0.4, seed=SEED))
        for one in found:
            self.assertTrue(torch.equal(one, found[0]))
        first = attune.dropout_mask((2, 4, 41, 41), 0.4, SEED, like=torch.zeros(1)).tril()
        self.assertTrue(torch.equal(found[0][:, :, :41, :41], first))
        second = attune.dropout_mask((4 * 2, 4, 164, 164), 0.4, SEED, like=torch.zeros(1))[4:6].tril()
        self.assertTrue(torch.equal(found[0][:, :, 41:205, 41:205], second))  # the third document

    def test_8_rank_0_draws_a_seed_that_is_not_given(self):
        group = self.groups[WORLD]
        layout = group.layout(300, kind="contiguous")
        torch.manual_seed(group.rank)
        choices = dict(group=group, layout=layout, mask="causal", dropout_p=0.3, context="cpu:1")
        q, k, v = (layout.shard(draw(2, 300, 4, HEAD_DIM, seed=place)) for place in range(3))
        one, other = (layout.unshard(ad.attention(q, k, v, **choices)) for _ in range(2))
        self.assertFalse(torch.equal(one, other))
        torch.manual_seed(0)
        seed = attune.score.dropout.drawn_seed(q)
        self.assertTrue(torch.equal(one, layout.unshard(ad.attention(q, k, v, seed=seed, **choices))))
        self.assertLess(ad.verify(q, k, v, **choices), 1e-5)


if __name__ == "__main__":
    ranks.main(RankTest, WORLD)
