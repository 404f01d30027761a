# SPDX-License-Identifier: Apache-2.0
"""A script of attune 0.2: calls what its pages show, on NumPy arrays, and compares each result with its own.

Prints a line of JSON for each plan. Usage: script.py [STORE to tune into]
"""
import json
import sys

import numpy as np

import attune

random = np.random.default_rng(0)


def draw(*shape):
    return random.standard_normal(shape, dtype=np.float32)


def expected(q, k, v, causal):
    """Attention of one request in float64. q: [rows, heads, dim]; k and v: [keys, heads_kv, dim]."""
    k, v = (np.repeat(x.astype(np.float64), q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("rhd,khd->hrk", q, k) / q.shape[2] ** 0.5
    if causal:
        scores[:, np.triu_indices(len(q), 1)[0], np.triu_indices(len(q), 1)[1]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hrk,khd->rhd", weights / weights.sum(-1, keepdims=True), v)


def show(plan):
    print(json.dumps({"template": plan.kernel_template, "rung": plan.rung, "text": plan.explain()}))


def prefill():
    q, k, v = (draw(1, 128, heads, 64) for heads in (4, 2, 2))
    show(attune.prepare(q, k, v, mask="causal"))
    o, lse = attune.attention(q, k, v, mask="causal", return_lse=True)
    assert np.allclose(o[0], expected(q[0], k[0], v[0], True), atol=1e-5) and lse.shape == (1, 4, 128)
    assert attune.why(q, k, v, mask="causal").rung == attune.prepare(q, k, v, mask="causal").rung
    context = attune.Context("cpu")
    plan = context.plan(attune.problem_text(q, k, v, mask="causal"), layout=(q, k, v, o))
    again = np.zeros_like(o)
    plan.run(q, k, v, again)
    launch = plan.launcher(q, k, v, again)
    launch()
    assert np.array_equal(o, again)


def decode():
    k_cache, v_cache = draw(32, 16, 2, 64), draw(32, 16, 2, 64)  # pages of 16 keys
    page_table = random.permutation(32).astype(np.int32).reshape(2, 16)
    kv_lengths = np.array([250, 17], np.int32)
    q = draw(2, 1, 4, 64)
    show(attune.prepare_kvcache(q, k_cache, v_cache, kv_lengths, page_table=page_table))
    o = attune.attention_kvcache(q, k_cache, v_cache, kv_lengths, page_table=page_table)
    for request, keys in enumerate(kv_lengths):
        k, v = (cache[page_table[request]].reshape(256, 2, 64)[:keys] for cache in (k_cache, v_cache))
        assert np.allclose(o[request], expected(q[request], k, v, False), atol=1e-5)


def tune(store):
    problem = "dtype=fp32,head_dim=32,heads=2/1,seqlen=16,mask=causal_bottom_right"
    report = attune.tune(problem, effort="quick", budget_s=60, target="cpu:1", store=store)
    assert not report.failures
    context = attune.Context("cpu:1", store=store)
    show(context.plan(problem))


prefill()
decode()
for path in sys.argv[1:]:
    tune(path)
