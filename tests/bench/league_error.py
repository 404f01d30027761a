# SPDX-License-Identifier: Apache-2.0
"""Errors of the league's runners against attention in float64, on the operands that they were given.

A sample is a part of a point's result: up to ROWS rows of one query head, or all gradients of one key head. Its error
is the norm of the difference over the norm of the exact values. The rows include the first and the last.
"""
import torch

ROWS = 64
CHUNK = 1024  # query rows of a gradient in float64 at a time
MOST_PAIRS = 2**33  # of a sample of gradients; larger points have no error of gradients


def sampled_rows(count, rng):
    """Returns row numbers, ascending."""
    rows = {0, count - 1} | {int(rng.random() * count) for _ in range(ROWS - 2)} if count > ROWS else range(count)
    return sorted(rows)


def hidden(case, rows, keys, device):
    """Returns True for pairs that mask and window hide; rows count from the first query. `case` is of cases.py."""
    at = torch.as_tensor(rows, device=device)[:, None] + case.seqlen_kv - case.seqlen_q
    column = torch.arange(keys, device=device)[None, :]
    found = torch.zeros(len(rows), keys, dtype=torch.bool, device=device)
    if case.causal:
        found |= column > at
    if case.window_left >= 0:
        found |= (column < at - case.window_left) | (column > at + (0 if case.causal else case.window_right))
    return found


def attend(q, k, v, unseen=None, change=None, sink=None):
    """Returns attention in float64 of q [rows, d] over k [keys, d] and v [keys, dv]. `change` maps scores to scores.
    `sink` is a score that takes part in the sum alone."""
    scores = q.double() @ k.double().T * q.shape[1]**-0.5
    if change is not None:
        scores = change(scores)
    if unseen is not None:
        scores = scores.masked_fill(unseen, float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, sink.double().expand(len(scores), 1)], 1)
    p = scores.softmax(1).nan_to_num(0.0)
    return p[:, :len(k)] @ v.double()


def gradients(q, k, v, dout, hidden_of):
    """Returns (dq, dk, dv) in float64 for the query heads of one key head: q, dout [rows, heads, d]; k, v [keys, d].
    hidden_of(begin, end) returns the hidden pairs of some rows."""
    scale = q.shape[2]**-0.5
    k, v = k.double(), v.double()
    dq = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for begin in range(0, len(q), CHUNK):
        unseen = hidden_of(begin, min(begin + CHUNK, len(q)))
        for head in range(q.shape[1]):
            rows, do = q[begin:begin + CHUNK, head].double(), dout[begin:begin + CHUNK, head].double()
            p = (rows @ k.T * scale).masked_fill(unseen, float("-inf")).softmax(1).nan_to_num(0.0)
            dp = do @ v.T
            ds = p * (dp - (p * dp).sum(1, keepdim=True)) * scale
            dq[begin:begin + CHUNK, head] = ds @ k
            dk += ds.T @ rows
            dv += p.T @ do
    return dq, dk, dv


def relative(got, want):
    """Returns the norm of the difference over the norm of `want`: the largest over the tensors of a tuple."""
    if isinstance(want, tuple):
        return max(relative(*both) for both in zip(got, want))
    return ((got.double() - want).norm() / want.norm().clamp(min=1e-30)).item()


class DenseSample:
    """Rows of one head of attention(): results are [batch, rows, heads, d]."""

    def __init__(self, case, q, k, v, rng, scores=None):
        self.at = int(rng.random() * q.shape[0]), int(rng.random() * q.shape[2])
        self.rows = sampled_rows(q.shape[1], rng)
        (batch, head), group = self.at, q.shape[2] // k.shape[2]
        unseen = hidden(case, self.rows, k.shape[1], q.device)
        more = scores(batch, head, self.rows, unseen) if scores else {"unseen": unseen}
        self.want = attend(q[batch, self.rows, head], k[batch, :, head // group], v[batch, :, head // group], **more)

    def error(self, result):
        return relative(result[self.at[0], self.rows, self.at[1]], self.want)


class GradientSample:
    """Gradients of one key head and its query heads; results are (dq, dk, dv)."""

    def __init__(self, case, q, k, v, dout, rng):
        self.want = None
        group = q.shape[2] // k.shape[2]
        if q.shape[1] * k.shape[1] * group > MOST_PAIRS:
            return
        self.batch, self.head = int(rng.random() * k.shape[0]), int(rng.random() * k.shape[2])
        self.heads = slice(self.head * group, (self.head + 1) * group)

        def hidden_of(begin, end):
            return hidden(case, range(begin, end), k.shape[1], q.device)
        self.want = gradients(q[self.batch, :, self.heads], k[self.batch, :, self.head], v[self.batch, :, self.head],
                              dout[self.batch, :, self.heads], hidden_of)

    def error(self, result):
        if self.want is None:
            return None
        dq, dk, dv = result
        return relative((dq[self.batch, :, self.heads], dk[self.batch, :, self.head], dv[self.batch, :, self.head]),
                        self.want)


class CacheSample:
    """Rows of one head of one request of cuda/decode.py's Case, over the keys of its first cache."""

    def __init__(self, case, sets, rng):
        request = int(rng.random() * len(case.lengths))
        head = int(rng.random() * case.heads)
        keys = case.lengths[request]
        rows = keys if case.packed else case.rows
        chosen = sampled_rows(rows, rng)
        k, v = (self.taken(case, sets, x, request)[:, head // (case.heads // case.heads_kv)].double()
                for x in sets.caches[0])
        factor = sets.factors[0]
        if case.by_key:
            factor = self.taken(case, sets, factor, request)[:, head // (case.heads // case.heads_kv), None].double()
        begin = sets.begins[request].item()
        self.index = ([begin + row for row in chosen], head) if case.packed else (request, chosen, head)
        unseen = None
        if case.packed or case.rows > 1:
            at = torch.as_tensor(chosen, device=k.device)[:, None] + keys - rows
            unseen = torch.arange(keys, device=k.device)[None, :] > at
        self.want = attend(sets.q[self.index], k * factor, v * factor, unseen)

    @staticmethod
    def taken(case, sets, x, request):
        """Returns what belongs to a request's keys, [keys, heads, ..]."""
        keys = case.lengths[request]
        if case.packed:
            return x[sets.begins[request].item():][:keys]
        if case.page:
            return x[sets.table[request, :-(-keys // case.page)].long()].flatten(0, 1)[:keys]
        return x[request, :keys]

    def error(self, result):
        return relative(result[self.index], self.want)


def score_terms(case, given):
    """Returns scores(batch, head, rows, unseen) for a Case of cuda/scores.py: the keywords of attend()."""
    def scores(batch, head, rows, unseen):
        keys, device = unseen.shape[1], unseen.device
        row = torch.as_tensor(rows, device=device)[:, None]
        column = torch.arange(keys, device=device)[None, :]
        if case.feature == "softcap":
            return {"unseen": unseen, "change": lambda s: case.value * torch.tanh(s / case.value)}
        if case.feature == "alibi":
            away = given["alibi_slopes"][head].double() * (row - column).abs()
            return {"unseen": unseen, "change": lambda s: s - away}
        if case.feature in ("bias", "relative_bias"):
            bias = given["bias"][0, head, rows] if case.feature == "bias" else given["relative_bias"][
                head, column - row + case.seqlen - 1]
            return {"unseen": unseen, "change": lambda s: s + bias.double()}
        if case.feature == "sinks":
            return {"unseen": unseen, "sink": given["sinks"][head]}
        if case.feature == "documents":
            ids = given["documents"][batch]
            return {"unseen": unseen | (ids[row] != ids[column])}
        return {"unseen": unseen}
    return scores
