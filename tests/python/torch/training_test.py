#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training through attention() in PyTorch: torch.compile, exporters of graphs, checkpoints, DistributedDataParallel,
and a small GPT whose losses are those of PyTorch's own attention. autograd_test.py looks at the gradients themselves.

    training_test.py [cuda] [whole]     whole: inductor, DistributedDataParallel, 200 steps

Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a GPU."""
import tempfile
import unittest

import gradient_cases
import torch
from gradient_cases import DEVICE, WHOLE
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import attune
import attune.sdpa
import attune.torch

OPS = ("attune.attention.default", "attune.attention_backward.default")


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def leaves(rows=33):
    return [draw(2, rows, heads, 32).requires_grad_() for heads in (4, 2, 2)]


def attend(q, k, v):
    return attune.attention(q * 2, k, v, mask="causal_bottom_right",
                            deterministic=True) * 0.5  # gradients are compared by bits


def with_state(q, k, v):
    o, lse = attune.attention(q, k, v, is_causal=True, return_lse=True)
    return o + lse.transpose(1, 2)[..., None]


def of_two_layers(q, k, v):
    return attune.attention(attune.attention(q, k, v, is_causal=True), k, v, window=(5, 5))


def as_sdpa(q, k, v):
    return attune.sdpa.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                                    is_causal=True, enable_gqa=True)


def gradients(function, given, dout=None):
    o = function(*given)
    return torch.autograd.grad(o, given, draw(*o.shape) if dout is None else dout)


class Seen(TorchDispatchMode):
    """Counts the calls of attune's ops."""

    def __init__(self):
        super().__init__()
        self.counts = dict.fromkeys(OPS, 0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if str(function) in self.counts:
            self.counts[str(function)] += 1
        return function(*args, **(kwargs or {}))


class CompileTest(unittest.TestCase):
    def check(self, backend, *functions):
        for function in functions:
            with self.subTest(function=function.__name__, backend=backend):
                torch._dynamo.reset()
                compiled = torch.compile(function, fullgraph=True, backend=backend)
                for rows in (33, 40, 47):
                    given = leaves(rows)
                    for x, y in zip(gradients(compiled, given), gradients(function, given)):
                        self.assertTrue(torch.allclose(x, y, rtol=1e-4, atol=1e-5))
                        self.assertEqual(x.stride(), y.stride())
                with torch.no_grad():
                    self.assertTrue(torch.allclose(compiled(*given), function(*given), atol=1e-5))

    def test_gradients_of_compiled_functions(self):
        self.check("aot_eager", *((attend, with_state, of_two_layers, as_sdpa) if WHOLE else (with_state,)))

    @unittest.skipUnless(WHOLE, "inductor takes long: run with whole")
    def test_inductor(self):
        self.check("inductor", attend, with_state, of_two_layers, as_sdpa)

    def test_opcheck(self):
        q, k, v = leaves()
        spec = "" if DEVICE == "cuda" else "context=cpu:1"
        tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        tests = tests if WHOLE else tests[:3]
        torch.library.opcheck(torch.ops.attune.attention.default, (q, k, v), {"spec": spec}, test_utils=tests)
        with torch.no_grad():
            o, lse = torch.ops.attune.attention(q, k, v, spec=spec)
        given = [o + 1, *(x.detach() for x in (q, k, v)), o, lse]
        for asked in ("qkv", "k"):
            torch.library.opcheck(torch.ops.attune.attention_backward.default, given,
                                  {"spec": spec, "gradients": asked, "dlse": lse + 1}, test_utils=tests)

    def test_strides_of_fake_gradients(self):
        for turn in (lambda x: x, lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
                     lambda x: torch.stack([x, x], 2)[:, :, 1], lambda x: x[:1].expand(2, -1, -1, -1)):
            q, k, v = (turn(x.detach()) for x in leaves())
            o, lse = attune.attention(q, k, v, return_lse=True)
            real = attune.attention_backward(o, q, k, v, o, lse)
            with FakeTensorMode() as mode:
                fake = attune.attention_backward(*(mode.from_tensor(x) for x in (o, q, k, v, o, lse)))
            for x, y in zip(real, fake):
                self.assertEqual((x.shape, x.stride(), x.dtype), (y.shape, y.stride(), y.dtype))

    def test_attention_backward_in_a_graph(self):
        q, k, v = (x.detach() for x in leaves())
        o, lse = attune.attention(q, k, v, return_lse=True)
        by_hand = lambda *given: attune.attention_backward(*given, gradients="qv", deterministic=True)
        found = torch.compile(by_hand, fullgraph=True, backend="aot_eager")(o, q, k, v, o, lse)
        self.assertIsNone(found[1])
        for x, y in zip(found, by_hand(o, q, k, v, o, lse)):
            self.assertTrue(x is y is None or torch.equal(x, y))


class CheckpointTest(unittest.TestCase):
    def counted(self, run):
        given = leaves()
        with Seen() as seen:
            found = gradients(run, given)
        for x, y in zip(found, gradients(attend, given)):
            self.assertTrue(torch.equal(x, y))
        return [seen.counts[op] for op in OPS]

    def test_plain(self):
        self.assertEqual(self.counted(attend), [1, 1])
        given = leaves()
        want = gradients(attend, given)
        for reentrant in (True, False):
            o = checkpoint(attend, *given, use_reentrant=reentrant)
            o.backward(draw(*o.shape))
            for x, y in zip(given, want):
                self.assertTrue(torch.equal(x.grad, y))
                x.grad = None
        self.assertEqual(self.counted(lambda *given: checkpoint(attend, *given, use_reentrant=False)), [2, 1])

    def test_selective(self):
        def keep_attention(_, op, *args, **kwargs):
            is_ours = op is torch.ops.attune.attention.default
            return CheckpointPolicy.MUST_SAVE if is_ours else CheckpointPolicy.PREFER_RECOMPUTE

        context = lambda: create_selective_checkpoint_contexts(keep_attention)
        given = leaves()
        o = checkpoint(attend, *given, use_reentrant=False, context_fn=context)
        with Seen() as seen:
            o.backward(draw(*o.shape))
        self.assertEqual([seen.counts[op] for op in OPS], [0, 1])  # the forward is not run again
        for x, y in zip(given, gradients(attend, given)):
            self.assertTrue(torch.equal(x.grad, y))


class Block(torch.nn.Module):
    """A layer of a GPT: attention and an MLP."""

    def __init__(self, dim, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.first, self.second = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(dim, 2 * dim), torch.nn.GELU(), torch.nn.Linear(2 * dim, dim))

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).view(*x.shape[:2], 3, self.heads, -1).transpose(1, 3).unbind(2)
        x = x + self.out(self.attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.second(x))


class Gpt(torch.nn.Module):
    def __init__(self, attention, words=29, dim=64, heads=4, layers=2, rows=32):
        super().__init__()
        torch.manual_seed(3)
        self.words, self.places = torch.nn.Embedding(words, dim), torch.nn.Embedding(rows, dim)
        self.blocks = torch.nn.Sequential(*(Block(dim, heads, attention) for _ in range(layers)))
        self.out = torch.nn.Linear(dim, words)
        self.to(DEVICE)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.out(self.blocks(x))


def batches(steps, batch=4, rows=32, words=29):
    """Synthetic text: each word follows from the one before it, with some noise."""
    chance = torch.Generator().manual_seed(5)
    for _ in range(steps):
        text = [torch.randint(words, (batch,), generator=chance)]
        for _ in range(rows):
            noise = torch.rand(batch, generator=chance) < 0.1
            text.append(
                torch.where(noise, torch.randint(words, (batch, ), generator=chance), (3 * text[-1] + 1) % words))
        yield torch.stack(text, 1).to(DEVICE)


def trained(attention, steps):
    model = Gpt(attention)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    losses = []
    for text in batches(steps):
        loss = torch.nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def on_two_processes(rank, file, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(Gpt(attune.sdpa.scaled_dot_product_attention))
    for text in batches(1):
        model(text[2 * rank:2 * rank + 2, :-1]).square().mean().backward()
    torch.save([x.grad for x in model.module.parameters()], f"{results}.{rank}")
    torch.distributed.destroy_process_group()


class LoopTest(unittest.TestCase):
    def test_losses_are_those_of_pytorch(self):
        steps = 200 if WHOLE or DEVICE == "cuda" else 40
        ours, theirs = trained(attune.sdpa.scaled_dot_product_attention, steps), trained(
            torch.nn.functional.scaled_dot_product_attention, steps)
        self.assertLess(sum(ours[-10:]), 0.8 * sum(ours[:10]))
        self.assertLess(max(abs(x - y) for x, y in zip(ours[:20], theirs)), 2e-3)  # before rounding grows
        self.assertLess(abs(sum(ours[-10:]) - sum(theirs[-10:])) / 10, 0.05)

    @unittest.skipUnless(WHOLE and DEVICE == "cpu", "starts two processes: run with whole")
    def test_distributed_data_parallel(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(on_two_processes, (f"{folder}/rendezvous", f"{folder}/gradients"), nprocs=2)
            found = [torch.load(f"{folder}/gradients.{rank}") for rank in range(2)]
        model = Gpt(torch.nn.functional.scaled_dot_product_attention)
        for text in batches(1):
            model(text[:, :-1]).square().mean().backward()
        for x, y, parameter in zip(*found, model.parameters()):
            self.assertTrue(torch.equal(x, y))
            self.assertTrue(torch.allclose(x, parameter.grad, rtol=1e-3, atol=1e-6))


if __name__ == "__main__":
    gradient_cases.main()
