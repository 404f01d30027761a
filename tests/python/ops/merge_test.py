#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""merge() against attention() over all keys at once and against float64, with NumPy on the CPU and with PyTorch on the
device named by the first argument. Skips aloud (status 77) without NumPy, or without PyTorch and that device."""
import itertools
import unittest

import attune
from library_and_device import DEVICE, np, torch
from skips import skip

INF = float("inf")
UNIT = {"fp32": 2.0 ** -20, "fp16": 2.0 ** -11, "bf16": 2.0 ** -8}
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def tensor(values, dtype="fp32"):
    """Returns a tensor of the library under test."""
    if torch is None:
        return values.astype(TYPES[dtype])
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(DEVICE, getattr(torch, TYPES[dtype]))


def numbers(x):
    return x.astype(np.float64) if torch is None else x.double().cpu().numpy()


def expected(o, lse, other_o, other_lse):
    """Merges states in float64; ignores the o of an empty state."""
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = np.logaddexp(lse, other_lse)
        both = np.zeros_like(o)
        for part, of in ((o, lse), (other_o, other_lse)):
            weight = np.where(of == -INF, 0.0, np.exp(of - whole)).transpose(0, 2, 1)[..., None]
            both += np.where(weight == 0, 0.0, weight * part)
    return both, whole


def draw(random, batch, seqlen, heads, head_dim, dtype):
    o = tensor(random.standard_normal((batch, seqlen, heads, head_dim)), dtype)
    return o, tensor(random.normal(3, 4, (batch, heads, seqlen)))


class Merge(unittest.TestCase):
    def hold(self, got, states, dtype):
        want, want_lse = expected(*map(numbers, states))
        o, lse = map(numbers, got)
        np.testing.assert_allclose(o, want, atol=4 * UNIT[dtype], rtol=UNIT[dtype])
        np.testing.assert_allclose(lse, want_lse, atol=1e-5, rtol=1e-5)

    def test_all_types_and_head_dims(self):
        random = np.random.default_rng(1)
        types = ("fp32", "fp16") if torch is None else ("fp32", "fp16", "bf16")
        for one, other in itertools.product(types, types):
            for head_dim, seqlen in ((16, 1), (40, 33), (64, 70), (128, 300), (200, 9), (512, 5)):
                with self.subTest(one=one, other=other, head_dim=head_dim):
                    shape = (2, seqlen, 3, head_dim)
                    states = (*draw(random, *shape, one), *draw(random, *shape, other))
                    got = attune.merge(*states)
                    self.assertEqual(got[0].dtype, states[0].dtype)
                    self.hold(got, states, one)

    def test_empty_states(self):
        random = np.random.default_rng(2)
        o, lse = draw(random, 1, 64, 2, 32, "fp32")
        other_o, other_lse = draw(random, 1, 64, 2, 32, "fp16")
        for rows, of, part in ((slice(0, 9), lse, o), (slice(20,
                                                             30), other_lse, other_o), (slice(40, 50), lse, o), (slice(
                                                                 45, 60), other_lse, other_o)):
            of[:, :, rows] = -INF
            part[:, rows] = float("nan")  # never read
        got = attune.merge(o, lse, other_o, other_lse)
        self.hold(got, (o, lse, other_o, other_lse), "fp32")
        np.testing.assert_array_equal(numbers(got[0])[:, 45:50], 0)
        np.testing.assert_array_equal(numbers(got[1])[:, :, 45:50], -INF)

    def test_nan_stays_in_its_row(self):
        o, lse = draw(np.random.default_rng(3), 1, 16, 1, 16, "fp32")
        other_o, other_lse = draw(np.random.default_rng(4), 1, 16, 1, 16, "fp32")
        lse[0, 0, 3], lse[0, 0, 5], other_lse[0, 0, 5], other_lse[0, 0, 7] = float("nan"), float("nan"), -INF, INF
        got = numbers(attune.merge(o, lse, other_o, other_lse)[0])
        for row in range(16):
            self.assertEqual(bool(np.isnan(got[0, row]).all()), row in (3, 5, 7), row)

    def test_two_halves_are_the_whole(self):
        random = np.random.default_rng(5)
        dtype = "fp32" if DEVICE != "cuda" else "bf16"
        q, k, v = (tensor(random.standard_normal((2, n, h, 64)), dtype) for n, h in ((70, 4), (150, 2), (150, 2)))
        hidden = np.arange(150)[None, None, None] > 60 + np.arange(70)[None, None, :, None]
        hidden[:, :, 0] = True
        mask = np.broadcast_to(~hidden, (2, 4, 70, 150)).copy()
        seen = mask if torch is None else torch.from_numpy(mask).to(DEVICE)
        whole, whole_lse = attune.attention(q, k, v, mask_tensor=seen, return_lse=True)
        state = None
        for begin, end in ((100, 150), (0, 37), (37, 100)):  # rows see no key of the first part
            part = attune.attention(
                q, k[:, begin:end], v[:, begin:end],
                mask_tensor=seen[..., begin:end] if torch is None else seen[...,
                                                                            begin:end].contiguous(), return_lse=True)
            state = part if state is None else attune.merge(*state, *part, out=state[0], lse_out=state[1])
        np.testing.assert_allclose(numbers(state[0]), numbers(whole), atol=2e-6 if dtype == "fp32" else 0.02)
        np.testing.assert_allclose(numbers(state[1]), numbers(whole_lse), atol=1e-5 if dtype == "fp32" else 2e-3)

    def test_in_place_and_strides(self):
        random = np.random.default_rng(6)
        both = tensor(random.standard_normal((2, 50, 2, 4, 48)))  # two states in one tensor
        o, other_o = both[:, :, 0], both[:, :, 1]
        lses = tensor(random.standard_normal((2, 2, 4, 50)))
        lse, other_lse = lses[:, 0], lses[:, 1]
        before = [np.copy(numbers(one)) for one in (o, lse, other_o, other_lse)]
        got = attune.merge(o, lse, other_o, other_lse, out=o, lse_out=lse)
        self.assertIs(got[0], o)
        want, want_lse = expected(*before)
        np.testing.assert_allclose(numbers(o), want, atol=4e-6)
        np.testing.assert_allclose(numbers(lse), want_lse, atol=1e-5)
        np.testing.assert_array_equal(numbers(other_o), before[2])

    def test_no_elements(self):
        for shape in ((0, 5, 2, 16), (2, 0, 2, 16)):
            o, lse = draw(np.random.default_rng(7), *shape, "fp32")
            self.assertEqual(tuple(attune.merge(o, lse, o, lse)[0].shape), shape)

    def test_wrong_calls(self):
        random = np.random.default_rng(8)
        o, lse = draw(random, 1, 8, 2, 32, "fp32")
        other, other_lse = draw(random, 1, 8, 2, 32, "fp16")
        for arguments, words in (((o, lse, other[:, :7], other_lse),
                                  "other_o has shape"), ((o, lse, other, other_lse[:, :1]), "other_lse has shape"),
                                 ((o, lse, other, tensor(numbers(other_lse), "fp16")), "other_lse is fp16"),
                                 ((o, None, other, other_lse), "lse is"), ((o[0], lse, other, other_lse),
                                                                           "o has 3 dimensions"),
                                 ((o, lse, o, lse, o[:, ::-1] if torch is None else o.transpose(2, 3)),
                                  "out has"), ((o, lse, other, other_lse, other), "out and other_o overlap"),
                                 ((o, lse, other, lse, None, lse.reshape(1, 2, 8)[:, :, :]), None)):
            with self.subTest(words=words):
                if words is None:
                    self.assertRaises(ValueError, attune.merge, *arguments)  # lse_out is lse, and so is other_lse
                else:
                    self.assertRaisesRegex((ValueError, TypeError), words, attune.merge, *arguments)
        if torch is not None:
            with self.assertRaisesRegex(
                    ValueError, "other_o is a NumPy array and o is a PyTorch tensor; both must be of one library"):
                attune.merge(o, lse, numbers(other), other_lse)
        with self.assertRaisesRegex(attune.Error, "head_dim_qk is 33|must be"):
            attune.merge(*draw(random, 1, 8, 2, 33, "fp32"), *draw(random, 1, 8, 2, 33, "fp32"))


if __name__ == "__main__":
    if torch is None:
        try:
            attune.Context("cpu:1")
        except attune.Error as error:
            skip(error)
    unittest.main()
