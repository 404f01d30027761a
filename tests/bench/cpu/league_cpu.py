# SPDX-License-Identifier: Apache-2.0
"""Builds the league's benches on the CPU from the runners of cpu_sdpa.py, cpu_backward.py and cpu_decode.py; see
league_bench.py. The peer is PyTorch with the same threads. Over pages PyTorch has no attention: its time is that over
slots of the same keys.
"""
import functools
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # PyTorch's idle threads must not spin while attune is timed

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import cases  # noqa: E402
import cpu_backward  # noqa: E402
import cpu_decode  # noqa: E402
import cpu_sdpa  # noqa: E402
import league_error  # noqa: E402
import timing  # noqa: E402
from league_bench import Bench, filled, plan_row, plan_rows  # noqa: E402

SAMPLE_US = 20000
APART = {"fp32": 1e-4, "bf16": 0.02, "fp16": 0.01}
PEERS = ("torch", )


def case_of(point):
    return cases.Case(**{key: one for key, one in point["case"].items() if key != "page"})


def as_cpu(case):
    """Returns the case as cpu_sdpa.py and cpu_backward.py take it."""
    return {
        "name": case.name, "head_dim": case.head_dim, "causal": case.causal, "seqlen": case.seqlen_q,
        "batch": case.batch, "heads": case.heads_q, "heads_kv": case.heads_kv, "problem": case.problem}


def problem_of(point):
    """Returns the problem to tune for a point."""
    case = case_of(point)
    if point["kind"].startswith("gradients"):
        return f"op=attention_backward,{case.problem}"
    if point["kind"].startswith("decode"):
        page = point["case"]["page"]
        return f"op=attention_kvcache,{case.problem}" + (f",page_size={page}" if page else "")
    return case.problem


def bench(point, plans, names, maker, **given):
    case = case_of(point)
    return Bench(problem=problem_of(point), mode=f"{point['kind'].split('_')[0]} {case.dtype}", plans=plans,
                 makers={name: maker for name in names}, most_apart=APART[case.dtype],
                 sampler=lambda run: timing.host_sampler(run, SAMPLE_US), **given)


def forward_bench(point, contexts, names, rng):
    case = case_of(point)
    given = as_cpu(case)
    q, k, v = cpu_sdpa.tensors(given, case.dtype)
    o = torch.full_like(q, float("nan"))
    ours, plans = {}, {}
    for label, context in contexts.items():
        plan, run = cpu_sdpa.attune_runner(context, given, q, k, v, o)
        plans[label] = plan_row(plan)
        ours[label] = functools.partial(filled, o, run)
    sample = league_error.DenseSample(case, *(x.transpose(1, 2) for x in (q, k, v)), rng)
    return bench(point, plans, names, lambda: functools.partial(cpu_sdpa.torch_attention, given, q, k, v), ours=ours,
                 result=lambda name, returned: returned.transpose(1, 2), sample=sample)


def gradients_bench(point, contexts, names, rng):
    case = case_of(point)
    given = as_cpu(case)
    q, k, v = cpu_sdpa.tensors(given, case.dtype)
    dout = torch.randn_like(q)
    ours = {label: cpu_backward.attune_runner(context, given, q, k, v, dout) for label, context in contexts.items()}
    sample = league_error.GradientSample(case, *(x.transpose(1, 2) for x in (q, k, v, dout)), rng)

    def result(name, returned):
        return tuple(x.transpose(1, 2) for x in returned) if name == "torch" else tuple(returned)
    return bench(point, plan_rows(contexts, problem_of(point)), names, lambda: cpu_backward.torch_runner(
        given, q, k, v, dout), ours=ours, result=result, sample=sample)


def decode_bench(point, contexts, names, rng):
    case, page = case_of(point), point["case"]["page"]
    keys = (case.seqlen_kv, case.heads_kv)
    q, k, v = (torch.randn(case.batch, seqlen, heads, case.head_dim).to(cpu_sdpa.DTYPES[case.dtype])
               for seqlen, heads in ((1, case.heads_q), keys, keys))
    caches = cpu_decode.paged(k, v, page) if page else (k, v, {})
    o = torch.empty_like(q)
    ours = {label: functools.partial(attune.attention_kvcache, q, *caches[:2], out=o, context=context, **caches[2])
            for label, context in contexts.items()}
    return bench(point, plan_rows(contexts, problem_of(point)), names, lambda: cpu_decode.torch_runner(q, k, v),
                 ours=ours, result=lambda name, returned: returned, sample=league_error.DenseSample(case, q, k, v, rng))


BUILDERS = {
    f"{kind}_{dtype}": builder
    for kind, builder in (("forward", forward_bench), ("gradients", gradients_bench), ("decode", decode_bench))
    for dtype in APART}


def usable_peers(asked):
    return list(asked), {}


def release():
    """Frees the memory of a point; on a CPU Python has done so."""


def facts(names, missing):
    return {"device": cpu_sdpa.processor(), "threads": torch.get_num_threads(), "torch": torch.__version__,
            "attune": attune.version(), "peers": {name: f"torch {torch.__version__}" for name in names},
            "missing_peers": missing}
