#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""8-bit tensors from Python: quantise(), and attention() on its results, with every shape of factors. Uses NumPy on the
CPU, and if PyTorch is installed also its float8 tensors on the CPU and on a GPU. Skips aloud (status 77) without NumPy
or the CPU target."""
import unittest

from skips import np, run
try:
    import torch
except ImportError:
    torch = None

import attune
from narrow_values import values_of_codes

BLOCK = 32
VALUES = values_of_codes("e4m3")


def draw(*shape, seed=7):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def decode(codes, scale, block=0):
    """Returns float64 [batch, rows, heads, head_dim] of e4m3 codes and factors [batch, heads(, blocks)]."""
    factors = np.asarray(scale, np.float64)
    if block:
        factors = np.repeat(factors, block, axis=2)[:, :, :codes.shape[1]].transpose(0, 2, 1)[..., None]
    elif factors.ndim:
        factors = factors[:, None, :, None]
    return VALUES[codes] * factors


def expected(q, k, v):
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    scores = np.einsum("bihd,bjhd->bhij", q, k) * q.shape[3] ** -0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v)


def rms(x):
    return float(np.sqrt(np.mean(np.square(np.asarray(x, np.float64)))))


class NumpyTest(unittest.TestCase):
    def test_quantize_is_quantise(self):
        x = draw(1, 32, 2, 64)
        for one, other in zip(attune.quantize(x), attune.quantise(x)):
            np.testing.assert_array_equal(one, other)
        self.assertIs(attune.prepare_quantize, attune.prepare_quantise)

    def test_quantise_keeps_the_values(self):
        for block in (0, BLOCK):
            x = draw(2, 70, 3, 80)
            codes, scale = attune.quantise(x, scale_block=block)
            self.assertEqual((codes.dtype, scale.shape), (np.uint8, (2, 3) if block == 0 else (2, 3, 3)))
            self.assertLess(rms(decode(codes, scale, block) - x), 0.03)
            self.assertLess(np.nanmax(np.abs(VALUES[codes])), 448.1)

    def test_transposed_is_the_transpose(self):
        x = draw(2, 70, 3, 64)
        rows, scale = attune.quantise(x, scale_block=BLOCK)
        turned, turned_scale = attune.quantise(x, scale_block=BLOCK, v_layout="transposed")
        np.testing.assert_array_equal(turned, rows.transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(turned_scale, scale)

    def test_rotation_keeps_products_and_spreads_outliers(self):
        q, k = draw(1, 64, 2, 64), draw(1, 64, 2, 64, seed=8)
        q[0, 5, 0, 3] = 1e5  # without rotation the other elements under this factor have two or three codes
        products = lambda a, b: np.einsum("bihd,bjhd->bhij", a, b)
        errors = {}
        for rotation in ("none", "hadamard"):
            (q8, q_scale), (k8, k_scale) = (attune.quantise(x, scale_block=16, rotation=rotation) for x in (q, k))
            got = products(decode(q8, q_scale, 16), decode(k8, k_scale, 16))
            errors[rotation] = rms((got - products(q, k))[0, 0, :5])  # rows that share a factor with the outlier
        self.assertLess(errors["hadamard"], errors["none"] / 3)

    def attend(self, tolerance=0.02, **choices):
        """Compares attention on quantised operands with float64 on the same values."""
        q, k, v = draw(2, 40, 4, 64), draw(2, 70, 2, 64, seed=8), draw(2, 70, 2, 64, seed=9)
        block = choices.get("scale_block", 0)
        q8, q_scale = attune.quantise(q, scale_block=block)
        k8, k_scale = attune.quantise(k, scale_block=block)
        rows, _ = attune.quantise(v, scale_block=block)
        v8, v_scale = attune.quantise(v, scale_block=block, v_layout=choices.get("v_layout", "rows"))
        want = expected(decode(q8, q_scale, block), decode(k8, k_scale, block), decode(rows, v_scale, block))
        o = attune.attention(q8, k8, v8, dtype="e4m3", q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, **choices)
        self.assertEqual(o.dtype, np.float16)
        self.assertLess(rms(o - want) / rms(want), tolerance)

    def test_attention(self):
        self.attend()
        self.attend(scale_block=BLOCK)
        self.attend(scale_block=BLOCK, v_layout="transposed")
        self.attend(accuracy="fast", v_layout="transposed", tolerance=0.05)

    def test_every_shape_of_factors(self):
        q, k, v = (np.random.default_rng(3).integers(0x20, 0x40, (2, 24, heads, 64)).astype(np.uint8)
                   for heads in (4, 2, 2))
        call = lambda q_scale=1.0, k_scale=1, v_scale=np.float32(1): attune.attention(
            q, k, v, dtype="e4m3", q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
        per_head = np.float32([[1.5, 0.5]])  # q's factors, one per group of heads
        scalar = np.float32(2)
        got = call(q_scale=per_head, k_scale=0.25, v_scale=np.array(scalar))
        factors = np.repeat(per_head, 2, axis=1)
        want = expected(decode(q, np.broadcast_to(factors, (2, 4))), VALUES[k] * 0.25, VALUES[v] * 2)
        self.assertLess(rms(got - want) / rms(want), 0.02)
        want = expected(VALUES[q], VALUES[k], VALUES[v])
        self.assertLess(rms(call() - want) / rms(want), 0.02)

    def test_empty_tensors(self):
        for shape in ((0, 8, 2, 64), (1, 0, 2, 64)):
            codes, scale = attune.quantise(np.zeros(shape, np.float32))
            self.assertEqual((codes.shape, scale.shape), (shape, (shape[0], 2)))
            self.assertTrue((scale == 1).all())

    def test_errors_name_what_is_wrong(self):
        q8, scale = attune.quantise(draw(1, 32, 2, 64), scale_block=16)
        with self.assertRaisesRegex(ValueError, "is uint8 and its type is not named"):
            attune.attention(q8, q8, q8)
        ones = {"k_scale": 1.0, "v_scale": 1.0}
        with self.assertRaisesRegex(ValueError, r"q_scale has shape \(1, 2, 2\); must be"):
            attune.attention(q8, q8, q8, dtype="e4m3", q_scale=scale, **ones)
        with self.assertRaisesRegex(ValueError, "k_scale is float64"):
            attune.attention(q8, q8, q8, dtype="e4m3", q_scale=1.0, k_scale=np.float64([[1.0]]))
        with self.assertRaisesRegex(ValueError,
                                    r"v_scale is missing; 8-bit tensors need the factors that quantise\(\) gave"):
            attune.attention(q8, q8, q8, dtype="e4m3", q_scale=scale, k_scale=scale, scale_block=16)
        x = draw(1, 32, 2, 64)
        with self.assertRaisesRegex(ValueError,
                                    "q_scale is given for a tensor of fp32; only 8-bit tensors have factors"):
            attune.attention(x, x, x, q_scale=scale)
        with self.assertRaisesRegex(attune.Error, "options .* are for 8-bit operands"):
            attune.attention(x, x, x, scale_block=16)
        with self.assertRaisesRegex(attune.Error, "takes powers of two"):
            attune.quantise(draw(1, 32, 2, 80), rotation="hadamard")
        with self.assertRaisesRegex(attune.Error, "accuracy is \"high\"; must be accurate or fast"):
            attune.attention(q8, q8, q8, dtype="e4m3", accuracy="high", q_scale=1.0, **ones)
        with self.assertRaisesRegex(ValueError, "accuracy is 'fast,scale_block_q=16'; must be one word"):
            attune.attention(q8, q8, q8, dtype="e4m3", accuracy="fast,scale_block_q=16", q_scale=1.0, **ones)
        with self.assertRaisesRegex(ValueError, "rotation is 'none,head_dim_v=16'; must be one word"):
            attune.quantise(x, rotation="none,head_dim_v=16")
        with self.assertRaisesRegex(ValueError, "dtype is fp16; dtype names the type of uint8 arrays"):
            attune.attention(x, x, x, dtype="fp16")
        with self.assertRaisesRegex(ValueError,
                                    "k is fp32 and dtype_kv is e4m3; dtype_kv names the type of uint8 arrays"):
            attune.attention(x, x, x, dtype_kv="e4m3")
        cache = np.zeros((1, 8, 1, 16), np.float32)
        with self.assertRaisesRegex(ValueError,
                                    "k_cache is fp32 and dtype_kv is e4m3; dtype_kv names the type of uint8 arrays"):
            attune.attention_kvcache(np.zeros((1, 1, 1, 16), np.float32), cache, cache,
                                     kv_lengths=np.array([4], np.int32), dtype_kv="e4m3")


@unittest.skipIf(torch is None, "there is no PyTorch here")
class TorchTest(unittest.TestCase):
    def check(self, device):
        torch.manual_seed(7)
        q, k, v = (torch.randn(2, rows, heads, 128, device=device, dtype=torch.bfloat16)
                   for rows, heads in ((96, 4), (130, 2), (130, 2)))
        want = expected(*(x.double().cpu().numpy() for x in (q, k, v)))
        for block, layout, out_dtype in ((0, "rows", torch.bfloat16), (64, "transposed", torch.float16)):
            q8, q_scale = attune.quantise(q, torch.float8_e4m3fn, scale_block=block, rotation="hadamard")
            k8, k_scale = attune.quantise(k, torch.float8_e4m3fn, scale_block=block, rotation="hadamard")
            v8, v_scale = attune.quantise(v, torch.float8_e4m3fn, scale_block=block, v_layout=layout)
            self.assertEqual((q8.dtype, q8.shape, v8.shape[-1]), (torch.float8_e4m3fn, q.shape, 130 if block else 128))
            o, lse = attune.attention(q8, k8, v8, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, scale_block=block,
                                      v_layout=layout, out_dtype=out_dtype, return_lse=True)
            self.assertEqual((o.dtype, o.device), (out_dtype, q.device))
            self.assertTrue(torch.isfinite(lse).all().item())
            self.assertLess(rms(o.double().cpu().numpy() - want) / rms(want), 0.08)

    def test_cpu(self):
        self.check(torch.device("cpu"))

    @unittest.skipUnless(torch is not None and torch.cuda.is_available(), "PyTorch sees no GPU here")
    def test_gpu(self):
        self.check(torch.device("cuda:0"))


if __name__ == "__main__":
    run()
