#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Score features of attune.attention() on NumPy arrays and the CPU, against float64. Skips aloud (status 77) without
NumPy or the CPU target."""
import os
import tempfile
import unittest

from skips import np, skip
import attune

BATCH, HEADS, HEADS_KV, ROWS, KEYS, DIM = 2, 4, 2, 37, 53, 64


def operands():
    random = np.random.default_rng(3)
    draw = lambda *shape: random.standard_normal(shape).astype(np.float32)
    return draw(BATCH, ROWS, HEADS, DIM), draw(BATCH, KEYS, HEADS_KV, DIM), draw(BATCH, KEYS, HEADS_KV, DIM)


def expected(q, k, v, score, seen=True):
    """score: a function of [batch, heads, rows, keys]; seen: what broadcasts to it."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = np.repeat(k, HEADS // HEADS_KV, axis=2), np.repeat(v, HEADS // HEADS_KV, axis=2)
    scores = np.where(seen, score(np.einsum("bihd,bjhd->bhij", q, k) * DIM ** -0.5), -np.inf)
    weights = np.exp(scores)
    total = weights.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.einsum("bhij,bjhd->bihd", np.where(total[..., None] > 0, weights / total[..., None], 0),
                         v), np.log(total)


class ScoresTest(unittest.TestCase):
    random = np.random.default_rng(5)
    row, key = np.arange(ROWS)[:, None], np.arange(KEYS)[None, :]

    def compare(self, score=lambda s: s, seen=True, **features):
        given = operands()
        o, lse = attune.attention(*given, return_lse=True, **features)
        want_o, want_lse = expected(*given, score, seen)
        self.assertLess(np.abs(o - want_o).max(), 3e-5)
        np.testing.assert_allclose(lse, want_lse, atol=1e-4)

    def test_softcap(self):
        self.compare(lambda s: 1.5 * np.tanh(s / 1.5), softcap=1.5)

    def test_bias_of_any_broadcast(self):
        for shape in ((BATCH, HEADS, ROWS, KEYS), (HEADS, ROWS, KEYS), (1, HEADS, 1, KEYS), (BATCH, 1, ROWS, 1),
                      (KEYS, )):
            bias = self.random.standard_normal(shape).astype(np.float32)
            self.compare(lambda s: s + bias, bias=bias)
            self.compare(lambda s: s + bias.astype(np.float16).astype(np.float64), bias=bias.astype(np.float16))

    def test_a_bias_may_have_any_strides(self):
        bias = self.random.standard_normal((KEYS, ROWS, HEADS)).astype(np.float32).transpose(2, 1, 0)
        self.compare(lambda s: s + bias, bias=bias)

    def test_a_bias_of_minus_infinity_hides(self):
        bias = np.where(self.random.random((ROWS, KEYS)) < 0.5, -np.inf, 1).astype(np.float32)
        bias[3] = -np.inf  # a row that sees no key
        self.compare(lambda s: s + bias, bias=bias)

    def test_relative_bias(self):
        table = self.random.standard_normal((HEADS, ROWS + KEYS - 1)).astype(np.float32)
        self.compare(lambda s: s + table[:, self.key - self.row + ROWS - 1], relative_bias=table)

    def test_alibi(self):
        slopes = np.array(attune.alibi_slopes(HEADS), np.float32)
        distance = np.abs(self.row + KEYS - ROWS - self.key)
        self.compare(lambda s: s - slopes[:, None, None] * distance, alibi_slopes=slopes)
        each = np.stack([slopes, 2 * slopes])
        self.compare(lambda s: s - each[:, :, None, None] * distance, alibi_slopes=each)

    def test_slopes_of_other_head_counts(self):
        self.assertEqual(attune.alibi_slopes(8), [2.0 ** -i for i in range(1, 9)])
        self.assertEqual(attune.alibi_slopes(6), [2.0 ** -2, 2.0 ** -4, 2.0 ** -6, 2.0 ** -8, 2.0 ** -1, 2.0 ** -3])

    def test_features_that_hide_keys(self):
        keep = self.random.random((BATCH, 1, ROWS, KEYS)) < 0.7
        self.compare(seen=keep, mask_tensor=keep)
        lengths = np.array([20, KEYS], np.int32)
        self.compare(seen=self.key < lengths[:, None, None, None], key_lengths=lengths)
        rows, keys = self.random.integers(0, 3, (BATCH, ROWS)).astype(np.int32), self.random.integers(
            0, 3, (BATCH, KEYS)).astype(np.int32)
        self.compare(seen=(rows[:, :, None] == keys[:, None, :])[:, None], documents=(rows, keys))
        prefix = np.array([0, 30], np.int32)
        self.compare(seen=(self.key <= self.row + KEYS - ROWS) | (self.key < prefix[:, None, None, None]),
                     prefix=prefix)
        self.compare(seen=(self.row + KEYS - ROWS) // 16 == self.key // 16, chunk=16)

    def test_sinks(self):
        sinks = np.array([0.5, -3, 20, -np.inf], np.float32)
        given = operands()
        lengths = np.array([0, KEYS], np.int32)  # rows of the first entry see only the sink
        o, lse = attune.attention(*given, return_lse=True, sinks=sinks, key_lengths=lengths)
        plain_o, plain_lse = attune.attention(*given, return_lse=True, key_lengths=lengths)
        want = np.logaddexp(plain_lse.astype(np.float64), sinks[:, None])
        np.testing.assert_allclose(lse, want, atol=1e-4)
        with np.errstate(invalid="ignore"):
            share = np.where(np.isneginf(plain_lse), 0, np.exp(plain_lse - want)).transpose(0, 2, 1)[..., None]
        self.assertLess(np.abs(o - plain_o * share).max(), 3e-5)
        np.testing.assert_array_equal(o[:, :, 3], plain_o[:, :, 3])  # a sink of -inf equals no sink, bit for bit

    def test_several_features_apply_in_their_order(self):
        bias = self.random.standard_normal((HEADS, ROWS, KEYS)).astype(np.float32)
        lengths = np.array([50, 9], np.int32)
        slopes = np.array(attune.alibi_slopes(HEADS), np.float32)
        distance = np.abs(self.row + KEYS - ROWS - self.key)
        self.compare(lambda s: 2 * np.tanh(s / 2) + bias - slopes[:, None, None] * distance, self.key
                     < lengths[:, None, None, None], softcap=2.0, bias=bias, alibi_slopes=slopes, key_lengths=lengths)

    def test_the_same_call_with_other_tensors(self):
        for _ in range(3):
            bias = self.random.standard_normal((ROWS, KEYS)).astype(np.float32)
            self.compare(lambda s: s + bias, bias=bias)

    def run_plan(self, text, captures=None, scalars=None, programs=None, **positions):
        q, k, v = operands()
        plan = attune.Context("cpu").plan(
            f"dtype=fp32,head_dim={DIM},heads={HEADS}/{HEADS_KV},batch={BATCH},seqlen_q={ROWS},seqlen_kv={KEYS}{text}",
            **programs or {})
        o, lse = np.empty_like(q), np.empty((BATCH, HEADS, ROWS), np.float32)
        plan.run(q, k, v, o, lse, captures=captures, scalars=scalars, **positions)
        again = np.empty_like(q)
        plan.launcher(q, k, v, again, captures=captures, scalars=scalars, **positions)()
        np.testing.assert_array_equal(o, again)
        return o, lse

    def test_a_text_reads_no_file(self):
        """A server may plan what its clients write; an error would quote the file."""
        text = f"dtype=fp32,head_dim={DIM},heads={HEADS},seqlen=9,"
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("secret")
            file.flush()
            for field in ("score_mod", "mask_mod"):
                for act in (attune.Context("cpu").plan, attune.tune):
                    with self.assertRaisesRegex((attune.Error, ValueError),
                                                f"{field} is @{file.name}; must be a digest") as caught:
                        act(f"{text}{field}=@{file.name}")
                    self.assertNotIn("secret", str(caught.exception))
        with self.assertRaisesRegex(TypeError, "mask_mod is of type int; must be the text of a program"):
            attune.Context("cpu").plan(text + "batch=1", mask_mod=3)

    def test_a_plan_takes_captures_and_scalars_by_name(self):
        bias = self.random.standard_normal((HEADS, ROWS, KEYS)).astype(np.float16)
        lengths = np.array([20, KEYS], np.int32)
        o, lse = self.run_plan(",bias=fp16,key_lengths=1,softcap=2", {"key_lengths": lengths, "bias": bias})
        want_o, want_lse = attune.attention(*operands(), return_lse=True, softcap=2.0, bias=bias, key_lengths=lengths)
        np.testing.assert_array_equal(o, want_o)
        np.testing.assert_array_equal(lse, want_lse)
        table = self.random.standard_normal((KEYS, 2)).astype(np.float32).T[::-1].copy()
        programs = {
            "score_mod": "// capture table: fp32[2]\n// scalar gain: float\nreturn score + gain * table[head % "
                         "2][kv_idx];",
            "mask_mod": "// scalar reach: int\nreturn abs(q_idx - kv_idx) <= reach;"}
        o, _ = self.run_plan("", {"table": table}, {"gain": 0.5, "reach": 9}, programs)
        seen = np.abs(self.row - self.key) <= 9
        want, _ = expected(*operands(), lambda s: s + 0.5 * table[np.arange(HEADS) % 2][:, None, :], seen)
        self.assertLess(np.abs(o - want).max(), 3e-5)

    def test_positions_of_a_plan(self):
        near = {"mask_mod": "// scalar reach: int\nreturn abs(q_idx - kv_idx) <= reach;"}
        o, _ = self.run_plan("", scalars={"reach": 9}, programs=near, q_position0=12, kv_position0=2)
        want, _ = expected(*operands(), lambda s: s, np.abs(self.row + 10 - self.key) <= 9)
        self.assertLess(np.abs(o - want).max(), 3e-5)
        causal = {"mask_mod": "return kv_idx <= q_idx;"}
        o, _ = self.run_plan("", programs=causal, q_position0=7, kv_position0=7)
        want, _ = self.run_plan(",mask=causal_top_left")
        np.testing.assert_array_equal(o, want)
        with self.assertRaisesRegex(attune.Error, "q_position0 is 7 and kv_position0 is 0; must be equal"):
            self.run_plan("", programs=causal, q_position0=7)

    def test_tensors_by_row_and_key_are_indexed_from_the_calls_first_row_and_key(self):
        """Wherever the call's rows and keys stand; slopes beside them count from there."""
        slopes = np.full((BATCH, HEADS), 0.2, np.float32)
        far = np.abs(self.row + 12 - 2 + KEYS - ROWS - self.key) * 0.2
        ids = self.random.integers(0, 3, (BATCH, ROWS)).astype(np.int32), self.random.integers(
            0, 3, (BATCH, KEYS)).astype(np.int32)
        bias, shared = self.random.standard_normal((BATCH, HEADS, ROWS, KEYS)).astype(np.float32), self.random.random(
            (ROWS, KEYS)) < 0.5
        for text, captures, more, seen in (("bias=fp32", {"bias": bias}, bias, True), ("bias=fp32", {
                "bias": bias[:, :, :1]}, bias[:, :, :1], True), ("bias=fp32", {
                    "bias": bias[:, :, :, ::2].repeat(2, 3)[..., :KEYS].transpose(3, 2, 1, 0).copy().transpose(
                        3, 2, 1, 0)}, bias[:, :, :, ::2].repeat(2, 3)[..., :KEYS], True), ("mask_tensor=1", {
                            "mask_tensor": shared
                        }, 0, shared), ("documents=1", dict(zip(
                            ("documents_q", "documents_kv"), ids)), 0, (ids[0][:, :, None] == ids[1][:, None])[:,
                                                                                                               None])):
            o, _ = self.run_plan(f",alibi=1,{text}", dict(captures, alibi_slopes=slopes), q_position0=12,
                                 kv_position0=2)
            want, _ = expected(*operands(), lambda s: s + more - far, seen)
            self.assertLess(np.abs(o - want).max(), 3e-5, (text, [x.shape for x in captures.values()]))

    def test_tables_of_distances_take_equal_positions(self):
        table = {"relative_bias": self.random.standard_normal((HEADS, ROWS + KEYS - 1)).astype(np.float32)}
        o, _ = self.run_plan(",relative_bias=fp32", table, q_position0=9, kv_position0=9)
        np.testing.assert_array_equal(o, self.run_plan(",relative_bias=fp32", table)[0])
        with self.assertRaisesRegex(attune.Error,
                                    "q_position0 is 9 and kv_position0 is 0; must be equal with relative_bias"):
            self.run_plan(",relative_bias=fp32", table, q_position0=9)

    def test_what_a_plan_refuses(self):
        bias = np.zeros((ROWS, KEYS), np.float32)
        mod = {"score_mod": "// capture t: int32[1]\n// scalar n: int\nreturn score + t[kv_idx] * n;"}
        good = np.zeros(KEYS, np.int32)
        for kind, message, text, captures, scalars in (
            (ValueError, "captures has bais; must be bias, which", ",bias=fp32",
             {"bais": bias}, None), (ValueError, "bias is fp32 with 2 dimensions; must be bf16", ",bias=bf16", {
                 "bias": bias}, None), (ValueError, r"bias has shape \(5, 53\)", ",bias=fp32", {
                     "bias": bias[:5]}, None), (ValueError, "t is int32 with 2 dimensions; must be int32 with 1", mod, {
                         "t": np.zeros(
                             (1, KEYS), np.int32)}, {"n": 1}), (ValueError, "captures has t; must be none", "", {
                                 "t": good}, None), (attune.Error, "has no capture t, which this plan reads", mod, {}, {
                                     "n": 1}), (attune.Error, "has no scalar n, which this plan reads", mod, {
                                         "t": good}, None), (attune.Error, "scalar n is 0.5; must be an integer", mod, {
                                             "t": good}, {"n": 0.5}),
            (attune.Error, "has a scalar m, which this plan does not read", mod, {"t": good}, {"n": 1, "m": 2})):
            with self.assertRaisesRegex(kind, message):
                self.run_plan("", captures, scalars, text) if text is mod else self.run_plan(text, captures, scalars)

    def test_refusals_name_what_came(self):
        q, k, v = operands()
        for message, features in (
            ("softcap is -1.0", dict(softcap=-1.0)), ("softcap is nan", dict(softcap=float("nan"))),
            ("bias has shape (5, 53)", dict(bias=np.zeros((5, KEYS), np.float32))), ("bias is float64",
                                                                                     dict(bias=np.zeros((ROWS, KEYS)))),
            ("a float mask is a bias",
             dict(mask_tensor=np.zeros((ROWS, KEYS), np.float32))), ("key_lengths is int64",
                                                                     dict(key_lengths=np.array([3, 4]))),
            ("chunk is 0", dict(chunk=0)), ("alibi_slopes has shape (3,)", dict(alibi_slopes=np.zeros(3, np.float32))),
            ("documents is a tuple of 3; must be a PyTorch tensor or a NumPy array, or a pair",
             dict(documents=(1, 2, 3))), ("alibi_slopes is a list of 2; must be a PyTorch tensor",
                                          dict(alibi_slopes=[1.0, 2.0]))):
            with self.assertRaisesRegex((ValueError, TypeError),
                                        message.replace("(", r"\(").replace(")", r"\)").replace("[", r"\[")):
                attune.attention(q, k, v, **features)
        with self.assertRaisesRegex(attune.Error, "prefix is given and mask is causal_top_left; mask must be none"):
            attune.attention(q, k, v, mask="causal_top_left", prefix=np.array([1, 2], np.int32))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATTUNE_STORE"] = os.path.join(folder, "store", "store.db")
        try:
            attune.Context("cpu")
        except attune.Error as error:
            skip(f"there is no CPU target here: {error}")
        unittest.main()
