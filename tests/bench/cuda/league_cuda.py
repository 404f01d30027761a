# SPDX-License-Identifier: Apache-2.0
"""Builds the league's benches on a CUDA device from the runners of attention.py, backward.py, decode.py, fp8.py and
scores.py; see league_bench.py. `names` are the peers that can be imported; each kind takes those that it has.

Every runner is timed as a captured graph. All calls run on the stream of the captures.
"""
import dataclasses
import functools
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attention as forward  # noqa: E402
import attune  # noqa: E402
import backward  # noqa: E402
import cases  # noqa: E402
import decode  # noqa: E402
import fp8  # noqa: E402
import league_error  # noqa: E402
import peers  # noqa: E402
import scores  # noqa: E402
import timing  # noqa: E402
from league_bench import Bench, filled, plan_row, plan_rows  # noqa: E402

SAMPLE_US = 3000
MODES_APART = {"accurate": 0.1, "fast": 0.15}  # e4m3 operands have three bits after the leading one


def bench(**given):
    """Returns a Bench whose calls run on the stream of the captures."""
    return Bench(**{
        "sampler": lambda run: timing.graph_sampler(run, SAMPLE_US), "synchronize": torch.cuda.synchronize,
        "around": lambda: torch.cuda.stream(timing.stream()), **given})


def rows_first(name, returned):
    """Returns a result as [batch, rows, heads, d]; attune's runners return it so."""
    return returned if name in ("tuned", "default") else peers.as_bshd(name, returned)


def forward_bench(point, contexts, names, rng):
    case = cases.Case(**point["case"])
    q, k, v = forward.tensors(case)
    o = torch.empty(*q.shape[:3], case.width_v, device=q.device, dtype=q.dtype)
    given = {"out": o, **forward.masks_of(case)}
    torch.cuda.synchronize()
    ours = {label: functools.partial(filled, o, attune.attention, q, k, v, context=context, **given)
            for label, context in contexts.items()}
    makers = {name: functools.partial(peers.PEERS[name], case, q, k, v) for name in names if name in peers.DEFAULT}
    flex = {name: makers.pop(name) for name in ("flex", ) if name in makers}
    plans = plan_rows(contexts, case.problem)
    return bench(problem=case.problem, mode=f"attention {case.dtype}", ours=ours, plans=plans, makers=makers,
                 last_resort=flex, result=rows_first, sample=league_error.DenseSample(case, q, k, v, rng))


def gradients_bench(deterministic, point, contexts, names, rng):
    case = cases.Case(**point["case"])
    tensors, gradients = backward.operands(case)
    torch.cuda.synchronize()
    ours = {}
    with torch.cuda.stream(timing.stream()):
        for label, context in contexts.items():
            run = backward.attune_runner(context, case, tensors, gradients, deterministic)
            ours[label] = functools.partial(filled, tuple(gradients), run)
    torch.cuda.synchronize()
    chosen = [name for name in backward.PEERS
              if name.partition(" ")[0] in names and name.endswith(" deterministic") == deterministic]
    makers = {name: functools.partial(backward.peer_runner, name, case, *tensors) for name in chosen}
    flex = {} if deterministic or "flex" not in names else {
        "flex": functools.partial(backward.peer_runner, "flex", case, *tensors)}
    problem = backward.problem_of(case, ",deterministic=1" if deterministic else "")
    return bench(problem=problem, mode=f"gradients {case.dtype}{' deterministic' * deterministic}", ours=ours,
                 plans=plan_rows(contexts, problem), makers=makers, last_resort=flex,
                 result=lambda name, returned: tuple(returned),
                 sample=league_error.GradientSample(case, *tensors, rng))


def serving_bench(point, contexts, names, rng):
    case = decode.Case(**{**point["case"], "lengths": tuple(point["case"]["lengths"])})
    sets = decode.Sets(case)
    torch.cuda.synchronize()

    def restart():
        sets.number = len(sets.caches) - 1  # so that the call takes the first copy, of which the sample is

    def result(name, returned):
        found = returned[0] if isinstance(returned, tuple) else returned
        return found.reshape(*sets.q.shape[:-1], found.shape[-1])
    mode = (f"attention_kvcache bf16, cache {case.dtype_kv or 'bf16'}{' per key' * case.by_key}"
            f"{', latent' * bool(case.head_dim_v)}")
    return bench(problem=case.problem, mode=mode,
                 ours={label: decode.ours(case, sets, context) for label, context in contexts.items()},
                 plans=plan_rows(contexts, case.problem), makers={
                     name: functools.partial(decode.PEERS[name], case, sets) for name in names if name in decode.PEERS},
                 result=result, restart=restart, sampler=lambda run: decode.sampler(run, sets, SAMPLE_US),
                 sample=league_error.CacheSample(case, sets, rng))


def e4m3_bench(mode, point, contexts, names, rng):
    """FlashAttention-3 gets the same e4m3 operands. cuDNN gets them in bf16: PyTorch offers it for 16 bits alone."""
    case = cases.Case(**point["case"])
    q, k, v = forward.tensors(case)
    narrow = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]
    wide = [x.to(torch.bfloat16) for x in narrow]
    del q, k, v
    ours, plans, outputs = {}, {}, {}
    for label, context in contexts.items():
        plan, outputs[label], run = fp8.fp8_runner(context, case, mode, *narrow)
        plans[label] = plan_row(plan)
        ours[label] = functools.partial(filled, outputs[label], run)
    operands = {"cudnn": wide, "flash3": narrow}
    makers = {name: functools.partial(peers.PEERS[name], case, *operands[name]) for name in operands if name in names}
    problem = e4m3_problem(case, mode)
    return bench(problem=problem, mode=f"attention e4m3 {mode}", ours=ours, plans=plans, makers=makers,
                 result=rows_first, sample=league_error.DenseSample(case, *wide, rng), most_apart=MODES_APART[mode])


def e4m3_problem(case, mode):
    """Returns the problem that fp8.fp8_runner() plans."""
    return dataclasses.replace(case, dtype=f"e4m3,accuracy={mode}").problem


def score_case(point):
    return scores.Case(**{**point["case"], "heads": tuple(point["case"]["heads"])})


def scores_bench(point, contexts, names, rng):
    case = score_case(point)

    def draw(heads, width):
        return torch.randn(case.batch, case.seqlen, heads, width, device="cuda", dtype=torch.bfloat16)
    q, k, v = draw(case.heads[0], case.head_dim), draw(case.heads[1], case.head_dim), draw(case.heads[1], case.width_v)
    o = torch.full((*q.shape[:3], case.width_v), math.nan, device=q.device, dtype=q.dtype)
    given = scores.tensors_of(case)
    torch.cuda.synchronize()
    ours, plans = {}, {}
    with torch.cuda.stream(timing.stream()):
        for label, context in contexts.items():
            plan, run = scores.attune_runner(context, case, given, q, k, v, o)
            ours[label] = functools.partial(filled, o, run)
            plans[label] = plan_row(plan)
    makers = {name: functools.partial(scores.PEERS[name], case, given, q, k, v) for name in scores.PEERS
              if name in names}
    dense = cases.Case("", case.batch, case.seqlen, case.seqlen, *case.heads, case.head_dim, case.causal, case.window)
    sample = league_error.DenseSample(dense, q, k, v, rng, league_error.score_terms(case, given))
    return bench(problem=case.problem(""), mode=f"attention bf16, {case.feature or 'plain'}", ours=ours, plans=plans,
                 makers=makers, result=rows_first, sample=sample)


BUILDERS = {
    "forward": forward_bench, "gradients": functools.partial(gradients_bench, False),
    "gradients_deterministic": functools.partial(gradients_bench, True), "serving": serving_bench,
    "e4m3_accurate": functools.partial(e4m3_bench, "accurate"), "e4m3_fast": functools.partial(e4m3_bench, "fast"),
    "scores": scores_bench}


def problem_of(point):
    """Returns the problem to tune for a point."""
    kind = point["kind"]
    if kind == "serving":
        return decode.Case(**{**point["case"], "lengths": tuple(point["case"]["lengths"])}).problem
    if kind == "scores":
        return score_case(point).problem("")
    case = cases.Case(**point["case"])
    if kind.startswith("e4m3"):
        return e4m3_problem(case, kind.removeprefix("e4m3_"))
    if kind.startswith("gradients"):
        return backward.problem_of(case, ",deterministic=1" if kind.endswith("deterministic") else "")
    return case.problem


PEERS = ("cudnn", "flash2", "flash3", "flash4", "flashinfer_fa2", "flashinfer_fa3", "flex")


def usable_peers(asked):
    """Returns the peers that can be imported, and {peer: reason} for the others."""
    missing = peers.missing(asked)
    return [name for name in asked if name not in missing], missing


def release():
    """Frees the memory of a point. Raises if a call has left the device unusable."""
    torch.cuda.synchronize()
    if "torch._dynamo" in sys.modules:  # importing it takes seconds
        torch._dynamo.reset()
    torch.cuda.empty_cache()


def facts(names, missing):
    return {**timing.facts(), "attune": attune.version(), "peers": peers.versions(names), "missing_peers": missing}
