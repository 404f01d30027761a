#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.distributed on three processes over gloo: results and gradients against float64 of the whole, on groups of
two and three ranks; ranks that disagree; a rank that ends. Starts the processes itself.
Skips aloud (status 77) without PyTorch, gloo or the CPU target."""
import contextlib
import os
import sys
import time
from unittest import mock

from skips import torch
import torch.distributed as dist

import attune
import attune.distributed as ad
import attune.distributed.group as group_module
import attune.distributed.run as forward
import attune.distributed.launches as launches
import ranks

WORLD, ENDED = 3, 7  # ENDED: status of the rank that ends
DIE_WITHIN_S = 20  # a rank that ends is told to the others by then
HEAD_DIM = 16


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def expected(q, k, v, seen, softcap=None, alibi_slopes=None, sinks=None):
    """Returns o and lse in float64. seen: bool [rows, keys]."""
    ratio, rows = q.shape[2] // k.shape[2], torch.arange(q.shape[1])
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(ratio, 2)) * q.shape[3]**-0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        scores = scores - alibi_slopes[:, None, None] * (rows[:, None] - rows).abs()
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)], 3)
    weights = scores.softmax(3)[..., :k.shape[1]]
    return torch.einsum("bhqk,bkhd->bqhd", weights, v.repeat_interleave(ratio, 2)), scores.logsumexp(3)


def seen_keys(seqlen, mask, window, documents):
    distance = torch.arange(seqlen)[:, None] - torch.arange(seqlen)
    seen = torch.ones(seqlen, seqlen, dtype=torch.bool)
    if mask is not None:
        seen &= distance >= 0
    left, right = window or (None, None)
    if left is not None:
        seen &= distance <= left
    if right is not None:
        seen &= -distance <= right
    if documents is not None:
        number = torch.bucketize(torch.arange(seqlen), torch.tensor(documents[1:]), right=True)
        seen &= number[:, None] == number
    return seen


class RankTest(ranks.WithGroups):
    def compare(self, seqlen, *, world=WORLD, heads=(4, 2), batch=1, mask=None, window=None, documents=None,
                kind="auto", algorithm="gather", dtype=torch.float32, head_dim=HEAD_DIM, features=(), with_lse=False,
                **choices):
        """Compares o, lse and all gradients of a group with float64 of the whole."""
        group = self.groups[world]
        if group is None:
            return
        layout = group.layout(seqlen, mask=mask, window=window, documents=documents, kind=kind)
        whole = [draw(batch, seqlen, number, head_dim, seed=place).to(dtype)
                 for place, number in enumerate((heads[0], heads[1], heads[1]))]
        features = {name: draw(heads[0], seed=9).abs() for name in features}
        exact = [x.double().requires_grad_() for x in whole]
        exact_features = {name: x.double().requires_grad_() for name, x in features.items()}
        o, lse = expected(*exact, seen_keys(seqlen, mask, window, documents), **exact_features,
                          **{name: choices[name] for name in ("softcap",) if name in choices})
        dout, dlse = draw(*o.shape, seed=3), draw(*lse.shape, seed=4) * with_lse
        (o * dout).sum().add((lse * dlse).sum()).backward()
        mine = [layout.shard(x).requires_grad_() for x in whole]
        learned = {name: x.clone().requires_grad_() for name, x in features.items()}
        call = dict(group=group, layout=layout, mask=mask, window=window, algorithm=algorithm, return_lse=with_lse,
                    context="cpu:1", pad_head_dim=True, **learned, **choices)
        found = ad.attention(*mine, **call)
        found, found_lse = found if with_lse else (found, None)
        loss = (found * layout.shard(dout).to(dtype)).sum()
        if with_lse:
            loss = loss + (found_lse * layout.shard(dlse, 2)).sum()
            self.close(found_lse, layout.shard(lse, 2), torch.float32)
        loss.backward()
        self.close(found, layout.shard(o), dtype)
        for x, y in zip(mine, exact):
            self.close(x.grad, layout.shard(y.grad), dtype)
        for name, x in learned.items():  # each rank has its part
            parts = group.gather_parts(x.grad, (heads[0],) * world)
            self.close(sum(parts), exact_features[name].grad, dtype)
        with torch.no_grad():
            again = ad.attention(*(x.detach() for x in mine), **call)
        self.assertTrue(torch.equal(again[0] if with_lse else again, found))

    def close(self, found, wanted, dtype):
        self.assertEqual(found.shape, wanted.shape)
        if found.numel():
            limit = {torch.float32: 2e-5, torch.bfloat16: 3e-2}[dtype] * max(1.0, wanted.abs().max().item())
            self.assertLess((found.double() - wanted).abs().max().item(), limit)

    # Names give the order, in which all ranks must run the tests.

    def test_01_causal(self):
        for world, algorithm in ((2, "gather"), (2, "exchange"), (3, "gather")):
            self.compare(600, world=world, mask="causal", algorithm=algorithm)

    def test_02_more_ranks_than_heads_of_keys(self):
        self.compare(300, world=2, heads=(4, 1), mask="causal", algorithm="exchange")
        self.compare(300, world=3, heads=(6, 3), batch=2, algorithm="exchange", with_lse=True)

    def test_03_windows(self):
        self.compare(600, window=(90, 20), kind="contiguous")
        self.compare(600, window=(90, 20), kind="zigzag")
        self.compare(600, mask="causal", window=(70, None), kind="zigzag")

    def test_04_documents(self):
        documents = (0, 41, 41, 423, 600)
        self.compare(600, mask="causal", documents=documents)
        self.compare(600, mask="causal", documents=documents, world=2, algorithm="exchange")
        self.compare(384, documents=(0, 128, 256, 384), kind="contiguous")  # nothing moves

    def test_05_scores(self):
        for algorithm in ("gather", "exchange"):
            self.compare(300, world=2, mask="causal", algorithm=algorithm, softcap=3.0, features=("sinks",))
            self.compare(300, world=2, mask="causal", algorithm=algorithm, features=("alibi_slopes",))

    def test_06_lse_batches_16_bits_and_odd_head_dims(self):
        self.compare(300, batch=2, with_lse=True, mask="causal")
        self.compare(300, dtype=torch.bfloat16, mask="causal")
        self.compare(200, head_dim=10, mask="causal")

    def test_07_empty_ranks(self):
        self.compare(100, mask="causal")
        self.compare(100, mask="causal", heads=(3, 3), algorithm="exchange")

    def test_08_one_rank_alone(self):
        rank = dist.get_rank()
        for one in range(WORLD):
            alone = dist.new_group([one])
            if one == rank:
                self.groups["alone"] = ad.Group(alone)
        group = self.groups["alone"]
        layout = group.layout(300, mask="causal")
        q, k, v = (draw(1, 300, heads, HEAD_DIM) for heads in (4, 2, 2))
        o = ad.attention(q, k, v, group=group, layout=layout, mask="causal", context="cpu:1")
        self.assertTrue(torch.equal(o, attune.attention(q, k, v, mask="causal", context="cpu:1")))

    def operands(self, layout):
        return [layout.shard(draw(1, layout.seqlen, heads, HEAD_DIM)) for heads in (4, 2, 2)]

    def test_10_what_is_not_served_is_refused_by_name(self):
        group = self.groups[WORLD]
        layout = group.layout(300, mask="causal")
        q, k, v = self.operands(layout)
        call, learned = dict(group=group, layout=layout, context="cpu:1"), torch.ones(4, requires_grad=True)
        for choices, words in (({"out": torch.zeros(1)}, "out is given, and a group does not serve it: it makes o"),
                               ({"dropout_p": 1.1}, "dropout_p is 1.1; must be in"), ({"mask": "odd"}, "mask is 'odd'"),
                               ({"algorithm": "ring"}, "algorithm is 'ring'"),
                               ({"alibi_slopes": torch.ones(4)}, "without a causal mask"),
                               ({"sinks": torch.ones(3)}, "sinks has shape"),
                               ({"score_mod": "return score;"}, "score_mod is of type str; must be a function"),
                               ({"score_mod": lambda s, b, h, q, k: s * learned[h]}, "reads a tensor that requires")):
            with self.assertRaisesRegex(ValueError, words):
                ad.attention(q, k, v, **call, **choices)
        with self.assertRaisesRegex(attune.Error, "4/2 heads on 3 ranks.*use gather"):
            ad.attention(q, k, v, **call, algorithm="exchange")
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'masks'"):
            ad.attention(q, k, v, **call, masks=1)
        with self.assertRaisesRegex(ValueError, "k is torch.float64"):
            ad.attention(q, k.double(), v, **call)
        with self.assertRaisesRegex(ValueError, "v has 1 tokens; must have"):
            ad.attention(q, k, v[:, :1], **call)

    def test_11_ranks_that_disagree_are_told_on_all_ranks(self):
        group, rank = self.groups[WORLD], dist.get_rank()
        layout = group.layout(300, mask="causal")
        q, k, v = self.operands(layout)
        call = dict(group=group, layout=layout, context="cpu:1")
        with self.assertRaisesRegex(ad.GroupError, "rank 0 has .*mask=none.*; rank 1 has .*mask=causal_bottom_right"):
            ad.attention(q, k, v, mask="causal" if rank == 1 else None, **call)
        with self.assertRaisesRegex(ad.GroupError, "rank 2 has .*v has 1 tokens"):
            ad.attention(q, k, v[:, :1] if rank == 2 else v, scale=0.5, **call)
        other = group.layout(300, mask="causal", kind="contiguous" if rank == 1 else "zigzag")
        with self.assertRaisesRegex(ad.GroupError, "layout=0-128"):
            ad.attention(*self.operands(other), group=group, layout=other, context="cpu:1")
        with mock.patch.object(group_module, "version", lambda: f"0.{min(rank, 1)}"):
            with self.assertRaisesRegex(ad.GroupError, "version of attune: 0.0; rank 1 has version of attune: 0.1"):
                ad.Group()
        ad.attention(q, k, v, mask="causal", **call)  # the group still works

    def test_12_every_call_is_compared_on_request(self):
        group, rank = self.groups[WORLD], dist.get_rank()
        layout = group.layout(300, mask="causal")
        q, k, v = self.operands(layout)
        call = dict(group=group, layout=layout, context="cpu:1")
        with mock.patch.object(group_module, "_CHECKS_EACH_CALL", True):
            ad.attention(q, k, v, mask="causal", **call)
            with self.assertRaisesRegex(ad.GroupError, "call 1: .*causal.*; rank 2 has call 1: .*window=5"):
                ad.attention(q, k, v, mask="causal", window=(5, None) if rank == 2 else None, **call)

    def test_13_verify_finds_a_rank_that_computes_its_own_shard_alone(self):
        group, rank = self.groups[WORLD], dist.get_rank()
        layout = group.layout(600, mask="causal")
        q, k, v = self.operands(layout)
        call = dict(group=group, layout=layout, mask="causal", context="cpu:1")
        self.assertLess(ad.verify(q, k, v, **call), 1e-5)
        gather = forward.FORWARD["gather"]

        def alone(run, q, k, v, *rest):
            gather(run, q, k, v, *rest)  # so that the others do not wait
            return attune.attention(q, k, v, mask="causal", context="cpu:1"), None, (), {}

        with mock.patch.dict(forward.FORWARD, {"gather": alone} if rank == 1 else {}):
            with self.assertRaisesRegex(ad.GroupError, "differ from one rank by"):
                ad.verify(q, k, v, **call)

    def test_14_explain(self):
        group = self.groups[WORLD]
        layout = group.layout(600, mask="causal")
        text = ad.explain(*self.operands(layout), group=group, layout=layout, mask="causal")
        self.assertIn(f"rank {group.rank} of 3: algorithm gather, layout {layout.text}", text)
        self.assertRegex(text, r"forward: received bytes by rank \d+, \d+, \d+\n  rows \d+-\d+, keys 0-")

    def test_09_programs_see_positions_and_heads_of_the_whole(self):
        table = draw(4, seed=2)
        bend = lambda score, b, h, q_idx, kv_idx: score + table[h] * (q_idx - 2 * kv_idx) * 0.01
        blocks = lambda b, h, q_idx, kv_idx: ((q_idx + kv_idx) // 70 % 2 == 0) | (kv_idx <= h)
        choices = dict(mask="causal", score_mod=bend, mask_mod=blocks)
        for world, algorithm in ((3, "gather"), (2, "exchange")):
            group = self.groups[world]
            if group is None:
                continue
            layout = group.layout(600, mask="causal")
            whole = [draw(1, 600, heads, HEAD_DIM, seed=heads).requires_grad_() for heads in (4, 2, 2)]
            dout = draw(1, 600, 4, HEAD_DIM, seed=8)
            wanted = attune.attention(*whole, context="cpu:1", **choices)
            wanted.backward(dout)
            mine = [layout.shard(x.detach()).requires_grad_() for x in whole]
            found = ad.attention(*mine, group=group, layout=layout, algorithm=algorithm, context="cpu:1", **choices)
            found.backward(layout.shard(dout))
            self.close(found, layout.shard(wanted.double()), torch.float32)
            for x, y in zip(mine, whole):
                self.close(x.grad, layout.shard(y.grad.double()), torch.float32)

    def test_15_a_kernel_that_one_rank_cannot_compile_is_told_on_all_ranks(self):
        group = self.groups[WORLD]
        layout = group.layout(300, mask="causal")
        q, k, v = (x.requires_grad_() for x in self.operands(layout))
        call = dict(group=group, layout=layout, mask="causal", softcap=9.0, context="cpu:1")
        error = attune.Error(4, "planted: the compiler failed")
        for name in ("attend", "attention_backward"):
            with mock.patch.object(launches, name, side_effect=error) if group.rank == 1 else contextlib.nullcontext():
                with self.assertRaisesRegex(ad.GroupError, "rank 1 has .*planted: the compiler failed"):
                    ad.attention(q, k, v, **call)
        ad.attention(q, k, v, **call).sum().backward()  # the group still works

    def test_16_a_rank_that_hangs_ends_the_waits_of_the_others(self):
        group = ad.Group(dist.new_group(), timeout_s=2)
        layout = group.layout(300, mask="causal")
        call = dict(group=group, layout=layout, mask="causal", context="cpu:1")
        ad.attention(*self.operands(layout), **call)
        if group.rank == 1:
            time.sleep(5)
        started = time.monotonic()
        with self.assertRaisesRegex(ad.GroupError, "could not exchange"):
            for _ in range(2):
                ad.attention(*self.operands(layout), **call)
        self.assertLess(time.monotonic() - started, DIE_WITHIN_S)
        for given, words in ((0, "timeout_s is 0; must be above 0"), (True, "timeout_s is")):
            with self.assertRaisesRegex((ValueError, TypeError), words):
                ad.Group(timeout_s=given)

    def test_99_a_rank_that_ends_ends_the_waits_of_the_others(self):
        group = self.groups[WORLD]
        layout = group.layout(600, mask="causal")
        q, k, v = self.operands(layout)
        call = dict(group=group, layout=layout, mask="causal", context="cpu:1")
        ad.attention(q, k, v, **call)
        if group.rank == 2:
            sys.stdout.flush()
            os._exit(ENDED)
        started = time.monotonic()
        with self.assertRaisesRegex(ad.GroupError, f"rank {group.rank} could not exchange"):
            for _ in range(2):  # a rank that needs nothing of the ended one may pass the first time
                ad.attention(q, k, v, **call)
        self.assertLess(time.monotonic() - started, DIE_WITHIN_S)
        with self.assertRaisesRegex(ad.GroupError, "the group failed before"):
            ad.attention(q, k, v, **call)


if __name__ == "__main__":
    ranks.main(RankTest, WORLD, [0, 0, ENDED])
