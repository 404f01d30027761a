# SPDX-License-Identifier: Apache-2.0
"""Requests in caches, and float64 references for attention over them, for tests of attention_kvcache()."""
import os

import attune
from library_and_device import DEVICE, np, torch
from skips import run

DTYPE = {"": "float32", "cpu": "float32", "cuda": "float16"}[DEVICE]
LIMIT = 2e-3 if DEVICE == "cuda" else 2e-5


def tensor(values):
    if torch is None:
        return values.astype(DTYPE)
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(DEVICE, getattr(torch, DTYPE))


def ints(values):
    values = np.asarray(values, np.int32)
    return values if torch is None else torch.from_numpy(values).to(DEVICE)


def numbers(x):
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.double().cpu().numpy()


def turned(x, cos, sin, interleaved=False):
    """Returns x [rows, heads, d] in float64, rotated by cos and sin [rows, pairs]."""
    pairs = cos.shape[1]
    c, s = cos[:, None], sin[:, None]
    made = np.array(x)
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    made[..., first] = x[..., first] * c - x[..., second] * s
    made[..., second] = x[..., second] * c + x[..., first] * s
    return made


def run_tests():
    """Runs the tests of the script; skips aloud if its device is missing."""
    run("cuda:0" if DEVICE == "cuda" else "cpu")


def checking_context(threads=2):
    """Returns a context that checks workspaces and lists before each run."""
    os.environ["ATTUNE_CHECK_WORKSPACE"] = "1"
    try:
        return attune.Context("cuda:0" if DEVICE == "cuda" else f"cpu:{threads}", store="")
    finally:
        del os.environ["ATTUNE_CHECK_WORKSPACE"]


def expected(q, keys, values, *, causal=False, window=(None, None), slopes=None, softcap=None):
    """Attends one request in float64: q [rows, heads, d], keys [length, heads_kv, d] -> o [rows, heads, dv], lse
    [heads, rows]."""
    rows, heads, _ = q.shape
    length, heads_kv = keys.shape[:2]
    o, lse = np.zeros((rows, heads, values.shape[2])), np.full((heads, rows), -np.inf)
    position = length - rows + np.arange(rows)[:, None]
    key = np.arange(length)[None]
    seen = np.ones((rows, length), bool)
    if causal:
        seen &= key <= position
    if window[0] is not None:
        seen &= key >= position - window[0]
    if window[1] is not None:
        seen &= key <= position + window[1]
    for head in range(heads):
        of = head // (heads // heads_kv)
        score = q[:, head] @ keys[:, of].T / np.sqrt(q.shape[2])
        if softcap:
            score = softcap * np.tanh(score / softcap)
        if slopes is not None:
            score = score - slopes[head] * np.abs(position - key)
        for row in range(rows):
            own = score[row][seen[row]]
            if own.size:
                weights = np.exp(own - own.max())
                o[row, head] = weights @ values[:, of][seen[row]] / weights.sum()
                lse[head, row] = own.max() + np.log(weights.sum())
    return o, lse


class Cache:
    """Random requests in pages or slots; unused places hold NaN."""

    def __init__(self, seed, lengths, room, heads_kv, d, dv, page_size=0, hnd=False):
        random = np.random.default_rng(seed)
        self.lengths, batch = lengths, len(lengths)
        self.keys = [self.rounded(random.standard_normal((n, heads_kv, d))) for n in lengths]
        self.values = [self.rounded(random.standard_normal((n, heads_kv, dv))) for n in lengths]
        size = page_size or room
        per = -(-room // size)
        pages = batch * per + 3
        order = random.permutation(pages)[:batch * per].reshape(batch, per)
        k, v = np.full((pages, size, heads_kv, d), np.nan), np.full((pages, size, heads_kv, dv), np.nan)
        for request, n in enumerate(lengths):
            for at in range(n):
                k[order[request, at // size], at % size] = self.keys[request][at]
                v[order[request, at // size], at % size] = self.values[request][at]
            order[request, -(-n // size):] = -1
        self.k, self.v = (tensor(x.transpose(0, 2, 1, 3)).swapaxes(1, 2) if hnd else tensor(x) for x in (k, v))
        lists = {"page_table": ints(order)} if page_size else {"slots": ints(np.maximum(order[:, 0], 0))}
        self.given = {"kv_lengths": ints(lengths), **lists}

    @staticmethod
    def rounded(x):
        return numbers(tensor(x))


def close(got, want, times=1):
    np.testing.assert_allclose(numbers(got), want, rtol=times * LIMIT, atol=times * LIMIT)
