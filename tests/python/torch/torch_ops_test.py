#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.attune on PyTorch's CPU tensors: results of specs against float64 and attention(), opcheck, fake kernels,
autocast, modes, merge, refusals. Arguments: whole: every spec. torch_compile_test.py has torch.compile. Skips aloud
(status 77) without PyTorch or the CPU target."""
import math
import sys
import tempfile
import unittest
import warnings

import attune  # before PyTorch, as most programs do not
from skips import run, torch
import attune.torch
import published_grids as grids
from torch._subclasses.fake_tensor import FakeTensorMode

WHOLE = "whole" in sys.argv and sys.argv.remove("whole") is None
OP = torch.ops.attune.attention.default


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def operands(dtype=torch.float32, seqlen_q=33, seqlen_kv=40, head_dim=32):
    return draw(2, seqlen_q, 4, head_dim, dtype=dtype), draw(2, seqlen_kv, 2, head_dim, dtype=dtype), draw(
        2, seqlen_kv, 2, head_dim + 16, dtype=dtype)[..., :head_dim]


TABLE = draw(4)
SCORE = attune.score_mod("return score - slopes[head] * abs(q_idx - kv_idx);", slopes=TABLE.abs())
MASK = attune.mask_mod(lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % 3 != 1)

# Keywords of attention(): each is a spec, tensors, programs, or several.
CALLS = ({"mask": "causal_bottom_right"}, {"mask": "causal_top_left", "window": (4, None)}, {
    "window": (3, 2), "scale": 0.3}, {"softcap": 20.0}, {"chunk": 16, "mask": "causal_bottom_right"}, {
        "bias": draw(4, 33, 40)}, {"relative_bias": draw(4, 72)}, {"alibi_slopes": draw(4).abs()}, {
            "mask_tensor": draw(2, 1, 33, 40) > 0}, {"key_lengths": torch.tensor([7, 40], dtype=torch.int32)}, {
                "documents": (torch.arange(66, dtype=torch.int32).view(2, 33) // 9,
                              torch.arange(80, dtype=torch.int32).view(2, 40) // 9)}, {
                                  "prefix": torch.tensor([3, 20], dtype=torch.int32)}, {"sinks": draw(4)}, {
                                      "score_mod": SCORE}, {"mask_mod": MASK}, {
                                          "score_mod": SCORE, "mask_mod": MASK, "softcap": 9.0, "bias": draw(33, 40)})
TENSORS = ("bias", "relative_bias", "alibi_slopes", "mask_tensor", "key_lengths", "prefix", "sinks")


def op_arguments(keywords):
    """Returns the keywords of the op for those of attention()."""
    given = {name: keywords[name] for name in (*TENSORS, "scale") if name in keywords}
    if "documents" in keywords:
        given["documents_q"], given["documents_kv"] = keywords["documents"]
    programs = {name: keywords[name] for name in ("score_mod", "mask_mod") if name in keywords}
    captures, scalars = attune.torch.captures_of(**programs)
    words = {name: keywords[name] for name in ("mask", "window", "softcap", "chunk") if name in keywords}
    return {
        **given, "spec": attune.torch.spec(**words, **programs, context="cpu:1"), "captures": captures or None,
        "scalars": scalars or None}


class OpsTest(unittest.TestCase):
    def test_specs_are_the_calls_of_attention(self):
        q, k, v = operands()
        for keywords in CALLS if WHOLE else CALLS[3::4]:
            with self.subTest(keywords=list(keywords)):
                arguments = op_arguments(keywords)
                self.assertNotRegex(arguments["spec"].split("\n")[0], "33|40")  # no lengths
                o, lse = OP(q, k, v, **arguments)
                want_o, want_lse = attune.attention(q, k, v, return_lse=True, context="cpu:1", **keywords)
                self.assertTrue(torch.equal(o, want_o) and torch.equal(lse, want_lse))

    def test_results_in_float64(self):
        for dtype, allowed in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)):
            q, k, v = operands(dtype)
            o, lse = OP(q, k, v, spec="mask=causal_bottom_right,window=9:-,softcap=7.0,context=cpu:1")
            want_o, want_lse = grids.reference(q, k, v, grids.visible(33, 40, "bottom_right", (9, None)), softcap=7.0)
            self.assertLess((o.double() - want_o).abs().max().item(), allowed)
            self.assertLess((lse.double() - want_lse).abs().max().item(), allowed)

    def test_opcheck(self):
        q, k, v = operands()
        for number, keywords in enumerate(CALLS):
            if not WHOLE and number != 15:
                continue
            with self.subTest(keywords=list(keywords)):
                torch.library.opcheck(OP, (q, k, v), op_arguments(keywords))
        torch.library.opcheck(OP, (q, k, v), {"spec": "context=cpu:1", "return_lse": False})
        out = {"o": torch.empty(2, 33, 4, 32), "lse": torch.empty(2, 4, 33), "spec": "context=cpu:1"}
        torch.library.opcheck(torch.ops.attune.attention_out.default, (q, k, v), out)
        torch.library.opcheck(torch.ops.attune.merge.default,
                              (draw(2, 5, 4, 16), draw(2, 4, 5), draw(2, 5, 4, 16), draw(2, 4, 5)))
        for layout in ("rows", "transposed"):
            for block in (0, 16):
                self.compare_fake(torch.ops.attune.quantise.default, (draw(2, 35, 4, 24), ),
                                  {"v_layout": layout, "scale_block": block})

    def compare_fake(self, op, given, keywords):
        """Compares shapes, strides and dtypes of the fake kernel with the real one's, because opcheck cannot compare
        8-bit elements."""
        real = op(*given, **keywords)
        with FakeTensorMode() as mode:
            fake = op(
                *(mode.from_tensor(x) for x in given), **{
                    name: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x
                    for name, x in keywords.items()})
        for a, b in zip((real, ) if isinstance(real, torch.Tensor) else real,
                        (fake, ) if isinstance(fake, torch.Tensor) else fake):
            self.assertEqual((a.shape, a.stride(), a.dtype, a.device.type),
                             (b.shape, b.stride(), b.dtype, b.device.type))

    def test_fake_kernels(self):
        q, k, v = operands()
        turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        for given in ((q, k, v), turned, operands(seqlen_q=0), *((operands(head_dim=59),) if WHOLE else ())):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # head dim 59 is padded
                self.compare_fake(OP, given, {"spec": "context=cpu:1"})
                self.compare_fake(OP, given, {"spec": "context=cpu:1", "return_lse": False})
        for masks in ({"key_lengths": torch.tensor([7, 40], dtype=torch.int32)}, {
                "mask_tensor": draw(1, 1, 33, 40) > 0}, {"spec": "chunk=16"}, {
                    "documents_q": torch.zeros(2, 33, dtype=torch.int32), "documents_kv": torch.zeros(
                        2, 40, dtype=torch.int32)}, {"spec": attune.torch.spec(mask_mod=MASK)}, {
                            "spec": attune.torch.spec(mask_mod="return kv_idx <= q_idx + head;")}):
            self.compare_fake(torch.ops.attune.block_map.default, (q, k), masks)

    def test_fake_tensors_and_modes_go_to_the_op(self):
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.utils._python_dispatch import TorchDispatchMode
        q, k, v = operands()

        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                names.append(str(function))
                return function(*args, **(kwargs or {}))

        names = []
        want = attune.attention(q, k, v, is_causal=False, softcap=5.0, documents=None)
        with Seen():
            self.assertTrue(torch.equal(attune.attention(q, k, v, softcap=5.0), want))
        self.assertIn("attune.attention.default", names)
        with FakeTensorMode() as mode:
            fake = attune.attention(*(mode.from_tensor(x) for x in (q, k, v)), return_lse=True)
        self.assertEqual([x.shape for x in fake], [(2, 33, 4, 32), (2, 4, 33)])
        for kind in ("fake", "real"):
            graph = make_fx(lambda q, k, v: attune.attention(q, k, v, softcap=5.0), tracing_mode=kind)(q, k, v)
            self.assertIn("torch.ops.attune.attention.default", graph.code)
            self.assertTrue(torch.equal(graph(q, k, v), want))

    def test_out(self):
        q, k, v = operands()
        o, lse = torch.full((2, 33, 4, 32), torch.nan), torch.full((2, 4, 33), torch.nan)
        self.assertIsNone(torch.ops.attune.attention_out(q, k, v, o=o, lse=lse, spec="context=cpu:1"))
        want = OP(q, k, v, spec="context=cpu:1")
        self.assertTrue(torch.equal(o, want[0]) and torch.equal(lse, want[1]))
        with self.assertRaisesRegex(ValueError, r"lse is torch.float64 .* must be torch.float32 of shape \(2, 4, 33\)"):
            torch.ops.attune.attention_out(q, k, v, o=o, lse=lse.double())

    def test_maps(self):
        q, k, v = operands(seqlen_q=200, seqlen_kv=300)
        spec = attune.torch.spec(mask_mod=MASK)
        granules = torch.ops.attune.block_map(q, k, spec=spec)
        self.assertTrue(torch.equal(granules, attune.block_map.build(q, k, mask_mod=MASK).granules))
        o, _ = OP(q, k, v, spec=attune.torch.spec(mask_mod=MASK, hides=False, context="cpu:1"), block_map=granules)
        self.assertLess((o - attune.attention(q, k, v, mask_mod=MASK)).abs().max().item(), 1e-5)
        with self.assertRaisesRegex(ValueError, "one of block_map and the spec's block_map= is given"):
            OP(q, k, v, block_map=granules)

    def test_autocast_casts_q_k_and_v_alone(self):
        q, k, v = operands()
        bias = draw(33, 40) * 1e-3 + 100  # which bf16 cannot hold
        want = attune.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), bias=bias)
        with torch.autocast("cpu", torch.bfloat16):
            for o in (OP(q, k.bfloat16(), v, bias=bias)[0], attune.attention(q, k, v.half(), bias=bias)):
                self.assertTrue(o.dtype == torch.bfloat16)
                self.assertLess((o - want).abs().max().item(), 2e-2)
            self.assertTrue(torch.equal(OP(q.bfloat16(), k.bfloat16(), v.bfloat16(), bias=bias)[0], want))
            with torch.autocast("cpu", enabled=False):
                self.assertEqual(attune.attention(q, k, v).dtype, torch.float32)

    def test_transforms_and_gradients_that_are_not_there_are_refused(self):
        q, k, v = operands(head_dim=32)
        for transform in (lambda f: torch.func.vmap(f)(q[None]), lambda f: torch.func.grad(lambda x: f(x).sum())(q)):
            with self.assertRaisesRegex(
                    RuntimeError,
                    r"torch.ops.attune.attention is called inside a torch.func transform .*vmap, grad, jvp"):
                transform(lambda x: OP(x, k, v)[0])
        leaf = q.clone().requires_grad_()
        for wrong in (lambda: torch.ops.attune.attention_out(leaf, k, v, o=torch.empty(2, 33, 4, 32)),
                      lambda: torch.ops.attune.merge(leaf, draw(2, 4, 33), q, draw(2, 4, 33)),
                      lambda: torch.ops.attune.quantise(leaf)):
            with self.assertRaisesRegex(ValueError, "(q|o|x) requires a gradient, and attune gives none of it here"):
                wrong()
        with torch.no_grad():
            OP(leaf, k, v)

    def test_dtensors_beside_plain_tensors_are_refused(self):
        """DTensor itself refuses, in a group of one process. dtensor_gloo_test.py has calls that are served."""
        try:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.tensor import Shard, distribute_tensor
        except ImportError:
            self.skipTest("this PyTorch has no DTensor")
        q, k, v = operands(head_dim=32)
        with tempfile.NamedTemporaryFile() as file:
            torch.distributed.init_process_group("gloo", init_method=f"file://{file.name}", rank=0, world_size=1)
            try:
                shared = [distribute_tensor(x, init_device_mesh("cpu", (1,)), [Shard(0)]) for x in (q, k, v)]
                for call in (OP, attune.attention):
                    with self.assertRaisesRegex((NotImplementedError, RuntimeError),
                                                "attune.attention.default.*mixed|mixed.*attune.attention.default"):
                        call(q, *shared[1:])
            finally:
                torch.distributed.destroy_process_group()

    def test_specs_are_checked(self):
        q, k, v = operands()
        for sentence, text in (("spec has 'seqlen=5'; must be mask=",
                                "seqlen=5"), ("spec has 'mask=none'; .* each once", "mask=none,mask=none"),
                               ("spec has 'chunk=x'; values must be", "chunk=x"), ("spec has a program of 'mod'",
                                                                                   "\n=== mod\nreturn score;"),
                               ("spec has 'block_map=no'", "block_map=no"), ("mask is of type|mask is 'diagonal'",
                                                                             "mask=diagonal")):
            with self.assertRaisesRegex(ValueError, sentence):
                OP(q, k, v, spec=text)
        with self.assertRaisesRegex(
                ValueError, "captures has 0 tensors and scalars 0 numbers; the spec's programs declare 1 and 0"):
            OP(q, k, v, spec=attune.torch.spec(score_mod=SCORE))
        with self.assertRaisesRegex(ValueError, "one of documents_q and documents_kv is given"):
            OP(q, k, v, documents_q=torch.zeros(2, 33, dtype=torch.int32))
        for name, value in (("window", 5), ("softcap", "x"), ("chunk", 1.5), ("mask", 3), ("pad_head_dim", 1),
                            ("context", "a b"), ("v_layout", "x")):
            with self.assertRaisesRegex((ValueError, TypeError), f"{name} is "):
                attune.torch.spec(**{name: value})

    def test_merge(self):
        q, k, v = operands(seqlen_kv=60)
        for dtype, allowed in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
            parts = [
                attune.attention(*(x.to(dtype) for x in (q, k[:, rows], v[:, rows])), return_lse=True)
                for rows in (slice(0, 25), slice(25, 60))]
            o, lse = torch.ops.attune.merge(*parts[0], *parts[1])
            want_o, want_lse = grids.reference(*(x.to(dtype) for x in (q, k, v)))
            self.assertLess((o.double() - want_o).abs().max().item(), allowed)
            self.assertLess((lse.double() - want_lse).abs().max().item(), allowed)
        parts[0][1][..., 0], parts[1][1][...,
                                         1] = -math.inf, -math.inf  # rows that saw nothing, in one and in the other
        o, lse = torch.ops.attune.merge(*parts[0], *parts[1])
        self.assertTrue(torch.equal(o[:, 0], parts[1][0][:, 0]) and torch.equal(lse[..., 0], parts[1][1][..., 0]))
        self.assertTrue(torch.equal(o[:, 1], parts[0][0][:, 1]) and torch.equal(lse[..., 1], parts[0][1][..., 1]))
        with FakeTensorMode() as mode:
            fake = attune.merge(*(mode.from_tensor(x) for x in (*parts[0], *parts[1])))
        self.assertEqual([(x.shape, x.stride(), x.dtype) for x in fake],
                         [(x.shape, x.stride(), x.dtype) for x in (o, lse)])


if __name__ == "__main__":
    run()
