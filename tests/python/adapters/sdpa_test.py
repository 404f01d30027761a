#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.sdpa takes the arguments of torch.nn.functional.scaled_dot_product_attention, with equal results and
gradients, in eager mode and in torch.compile; otherwise it raises a message. signatures_test.py has random calls of the
usual form. Skips aloud (status 77) without PyTorch or the CPU target."""
import unittest
import unittest.mock

from skips import run, without_modules

with without_modules():
    import torch
    from torch.nn.attention import bias
    from torch.nn.functional import scaled_dot_product_attention as theirs

import attune
import attune.sdpa

ours = attune.sdpa.scaled_dot_product_attention


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


class Named(torch.Tensor):
    """A subclass of PyTorch's tensor that adds nothing."""


class Hidden(torch.Tensor):
    """Whose elements are not what it means."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})


Q, K, V = draw(2, 4, 9, 32), draw(2, 4, 9, 32) + 0.5, draw(2, 4, 9, 32) - 0.5
FIVE = [draw(2, 3, 4, 9, 32) + i / 4 for i in range(3)]
MASK = (draw(9, 9) > -0.5) | torch.eye(9, dtype=torch.bool)
# By name: query, key and value, and the rest of the call.
CALLS = {
    "head_dim strided": ((Q.transpose(2, 3).contiguous().transpose(2, 3), K.transpose(2, 3).contiguous().transpose(
        2, 3), V), {}),
    "rows between multiples of 16 bytes": (tuple(draw(2, 4, 9, 35)[..., :32] + 0
                                                 for _ in range(2)) + (draw(2, 4, 9, 35)[..., :32], ), {}),
    "head_dim of 33 strided": ((draw(2, 4, 33, 9).transpose(2, 3), draw(2, 4, 9, 33), draw(2, 4, 9, 33)), {}),
    "first element between multiples of 16 bytes": ((draw(2, 4, 9, 36)[..., 1:33], K, V), {}),
    "a batch of 1": ((Q, K[:1], V[:1]), {}),
    "a batch of 1 of value": ((Q, K, V[:1]), {}),
    "a batch of 1 of query": ((Q[:1], K, V), {}),
    "one head": ((Q, K[:, :1], V[:, :1]), {}),
    "one head of value": ((Q, K, V[:, :1]), {}),
    "one head of query and key": ((Q[:, :1], K[:, :1], V), {}),
    "one head of query": ((Q[:, :1], K, V), {"is_causal": True}),
    "fewer heads of value": ((Q, K, V[:, :2]), {"enable_gqa": True}),
    "fewer heads of key": ((Q, K[:1, :1], V[:, :2]), {"enable_gqa": True}),
    "a negative view": ((Q, torch._neg_view(K), V), {}),
    "a mask that is a negative view": ((Q, K, V), {"attn_mask": torch._neg_view(draw(9, 9))}),
    "two axes": ((Q[0, 0], K[0, 0], V[0, 0]), {"attn_mask": MASK}),
    "three axes": ((Q[0], K[0], V[0]), {"attn_mask": MASK.expand(4, 9, 9)}),
    "three axes and a mask of four": ((Q[0], K[0], V[0]), {"attn_mask": MASK[None, None]}),
    "three axes, of heads": ((Q[0], K[0, :2], V[0, :1]), {"enable_gqa": True, "is_causal": True}),
    "five axes": (FIVE, {"is_causal": True, "scale": 0.2}),
    "five axes that repeat": ((FIVE[0], FIVE[1][:1, :, :1], FIVE[2][:1, :1]), {}),
    "five axes and a mask of all": (FIVE, {"attn_mask": draw(2, 3, 1, 1, 9)}),
    "five axes and a mask of some": (FIVE, {"attn_mask": draw(3, 4, 9, 9)}),
    "five axes in groups": ((FIVE[0], FIVE[1][:, :, :2], FIVE[2][:, :, :2]), {"enable_gqa": True, "attn_mask": MASK}),
    "other ranks": ((Q, K[0], V[0, 0]), {}),
    "all weights dropped": ((Q, K, V), {"dropout_p": 1.0}), }
CAUSAL = {
    "upper left": (bias.causal_upper_left(5, 9), (Q[:, :, :5], K, V)), "lower right": (bias.causal_lower_right(
        5, 9), (Q[:, :, :5], K, V)), "lower right of a square": (bias.causal_lower_right(9, 9), (Q, K, V))}


def gradients(function, operands, given):
    operands = [x.detach().requires_grad_() for x in operands]
    o = function(*operands, **given)
    o.pow(2).sum().backward()
    return [o.detach(), *(x.grad for x in operands)]


class Compared(unittest.TestCase):
    def near(self, found, want, what=""):
        self.assertEqual((found.shape, found.dtype), (want.shape, want.dtype), what)
        self.assertLess((found - want).abs().max().item(), 2e-5 * max(1.0, want.abs().max().item()), what)


class SdpaTest(Compared):
    def test_calls_that_pytorch_serves(self):
        for name, (operands, given) in CALLS.items():
            with self.subTest(name):
                for _ in range(2):  # the second call may be a known one
                    self.near(ours(*operands, **given), theirs(*operands, **given))
                for found, want in zip(gradients(ours, operands, given), gradients(theirs, operands, given)):
                    self.near(found, want)

    def test_in_graphs(self):
        for name in ("head_dim strided", "a batch of 1", "fewer heads of value", "two axes",
                     "five axes and a mask of some", "all weights dropped"):
            operands, given = CALLS[name]
            torch._dynamo.reset()
            compiled = torch.compile(lambda *operands: ours(*operands, **given), fullgraph=True, backend="aot_eager")
            self.near(compiled(*operands), theirs(*operands, **given), name)

    def test_causal_biases(self):
        for name, (mask, operands) in CAUSAL.items():
            want = theirs(*operands, mask._materialize())
            self.near(ours(*operands, mask), want, name)
            self.near(ours(*operands, attn_mask=mask), theirs(*operands, attn_mask=mask), name)
            self.near(
                torch.compile(lambda *given: ours(*given), fullgraph=True, backend="eager")(*operands, mask), want,
                name)
            for found, other in zip(gradients(lambda *given: ours(*given, mask), operands, {}),
                                    gradients(theirs, operands, {"attn_mask": mask._materialize()})):
                self.near(found, other, name)
        mask = bias.causal_lower_right(5, 9)
        with self.assertRaisesRegex(ValueError, "attn_mask is given and is_causal is True"):
            ours(Q[:, :, :5], K, V, mask, is_causal=True)
        with self.assertRaisesRegex(
                ValueError,
                "attn_mask is a CausalBias of 5 rows and 9 keys; must have query's 9 rows and key's 9 keys"):
            ours(Q, K, V, mask)

    def test_masks_that_are_classes_are_refused(self):
        rows_first = [x.transpose(1, 2) for x in (Q, K, V)]
        for mask, name in ((bias.causal_lower_right(9, 9), "CausalBias"), (torch.zeros(
                9, 9).as_subclass(Hidden), "Hidden")):
            for keyword in ("bias", "mask_tensor"):
                for q in (rows_first[0], rows_first[0].clone().requires_grad_()):
                    with self.assertRaisesRegex(ValueError,
                                                f"{keyword} is a {name}, a class with its own __torch_function__"):
                        attune.attention(q, *rows_first[1:], **{keyword: mask})
        with self.assertRaisesRegex(ValueError, "attn_mask is a Hidden"):
            ours(Q, K, V, torch.zeros(9, 9).as_subclass(Hidden))

    def test_subclasses_stay(self):
        for operands, mask in (((Q.as_subclass(Named), K, V), None), ((Q, K[:1].as_subclass(Named), V), None),
                               ((Q, K, V), MASK.as_subclass(Named)), ((Q.clone().requires_grad_().as_subclass(Named), K,
                                                                       V), None)):
            found, want = ours(*operands, mask), theirs(*operands, mask)
            self.assertIs(type(found), Named)
            self.near(found.as_subclass(torch.Tensor), want.as_subclass(torch.Tensor))
        self.assertIs(type(ours(torch.nn.Parameter(Q), K, V)), torch.Tensor)

    def test_refusals(self):
        for operands in ([x.double() for x in (Q, K, V)], [x.double().requires_grad_() for x in (Q, K, V)]):
            with self.assertRaisesRegex(
                    ValueError,
                    "is float64, and attune computes in fp32 at most; must be .*functional.scaled_dot_product"):
                ours(*operands)
        for operands in ((Q, K[:, :2], V), (Q, K, V[:, :2])):
            with self.assertRaisesRegex(ValueError, "must be|must divide"):
                ours(*operands)


class NestedTest(Compared):
    OFFSETS = torch.tensor([0, 3, 9, 9, 14])

    def nested(self, values, offsets=OFFSETS, **known):
        return torch.nested.nested_tensor_from_jagged(values, offsets=offsets, **known).transpose(1, 2)

    def test_jagged(self):
        for heads_kv, is_causal in ((4, False), (4, True), (2, True)):
            values = [draw(14, heads, 32).requires_grad_() for heads in (4, heads_kv, heads_kv)]
            nested = [self.nested(x) for x in values]
            o = ours(*nested, is_causal=is_causal, enable_gqa=heads_kv != 4)
            self.assertEqual((nested[0] + o).shape, nested[0].shape)  # both have the same ragged axis
            o = o.transpose(1, 2).values()
            found = [o.detach(), *torch.autograd.grad(o.pow(2).sum(), values)]
            parts = [
                theirs(*(x[a:b].transpose(0, 1) for x in values), is_causal=is_causal, enable_gqa=True).transpose(0, 1)
                for a, b in zip(self.OFFSETS.tolist(),
                                self.OFFSETS.tolist()[1:])]
            want = torch.cat(parts)
            for one, other in zip(found, [want.detach(), *torch.autograd.grad(want.pow(2).sum(), values)]):
                self.near(one, other)

    def test_lengths_that_are_known(self):
        """The device is not waited for then: the longest sequence is what the tensors say."""
        values = draw(14, 4, 32)
        known, unknown = self.nested(values, min_seqlen=0, max_seqlen=6), self.nested(values)
        with unittest.mock.patch("torch.stack", side_effect=AssertionError):
            o = ours(known, known, known)
        self.assertTrue(torch.equal(o.values(), ours(unknown, unknown, unknown).values()))

    def test_refusals(self):
        one, other = (self.nested(draw(9, 4, 32), torch.tensor(offsets)) for offsets in ([0, 3, 9], [0, 5, 9]))
        self.assertEqual(ours(one, other, other).shape, one.shape)
        strided = torch.nested.nested_tensor([draw(4, 3, 32), draw(4, 5, 32)])
        for operands, given, sentence in (
            ((one, other, other), {
                "is_causal": True}, "is_causal is True for nested tensors whose rows and keys differ"),
            ((one, one, other), {}, "key and value are nested tensors of different lengths"), ((one, one, one), {
                "attn_mask": MASK}, "attn_mask is given with nested tensors"),
            ((one, K, V), {}, r"query is a nested .*x.values.*flash_attn_varlen_func\(q, k, v, cu_seqlens_q, ..\)"),
            ((Q, one, one), {}, "key is a nested"), ((strided, strided, strided), {}, "query is a nested")):
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                ours(*operands, **given)


if __name__ == "__main__":
    run()
