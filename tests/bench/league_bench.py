# SPDX-License-Identifier: Apache-2.0
"""A bench is one point of the league, ready to be timed: attune's runners ("tuned", "default"), its peers' runners, and
how results are compared. league_cuda.py and league_cpu.py build benches; compare() and league.py use them.

An error of a peer is the reason why it is not timed. An error of attune fails the point.
"""
import contextlib
from dataclasses import dataclass, field

from league_record import judged, medians


class Wrong(Exception):
    """attune's result is wrong, by its distance to float64 or, where no error is known, to a peer."""


@dataclass
class Bench:
    """ours: runners of attune by label. makers: functions that return a peer's runner, or None where it does not serve
    the case. result(name, returned): a runner's result in one form for all. sample: of league_error.py; None: no error
    is measured. most_apart: the largest relative distance that rounding explains."""
    problem: str
    mode: str  # op, dtype and mode, for the table of errors
    ours: dict
    plans: dict
    makers: dict
    result: object
    sampler: object  # sampler(run) -> function that takes a sample in us
    sample: object = None
    most_apart: float = 0.02
    last_resort: dict = field(default_factory=dict)  # makers that are used if no other peer serves the case
    restart: object = None  # called before each call whose results are compared
    synchronize: object = lambda: None
    around: object = contextlib.nullcontext  # returns the context manager of all calls, such as a stream


def plan_row(plan):
    """Returns a plan's kernel; the last one's for a call that runs several."""
    plan = plan[-1] if isinstance(plan, list) else plan
    return {"template": plan.kernel_template, "config": plan.config, "rung": plan.rung}


def same_kernel(a, b):
    return (a["template"], a["config"]) == (b["template"], b["config"])


def plan_rows(contexts, problem):
    return {label: plan_row(context.plan(problem)) for label, context in contexts.items()}


def filled(output, call, /, *operands, **given):
    """Calls attune on an output that is given, and returns that output."""
    call(*operands, **given)
    return output


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def called(bench, run):
    """Returns what a runner returns, once the device has computed it."""
    bench.synchronize()  # results are copied on another stream than that of calls
    if bench.restart:
        bench.restart()
    with bench.around():
        found = run()
    bench.synchronize()
    return found


def built(bench, makers, refused):
    """Returns runners and results of the peers that serve the case. Adds the reasons of the others to `refused`."""
    runners, results = {}, {}
    for name, maker in makers.items():
        try:
            with bench.around():
                run = maker()
            if run is None:
                continue
            results[name] = bench.result(name, called(bench, run))
            runners[name] = run
        except Exception as error:  # a peer's limits do not end the league
            refused[name] = first_line(error)
    return runners, results


def distance(mine, theirs):
    """Returns the norm of the difference over the norm of `theirs`: the largest over the tensors of a tuple."""
    if isinstance(theirs, tuple):
        return max(distance(*both) for both in zip(mine, theirs))
    return ((mine.float() - theirs.float()).norm() / theirs.float().norm().clamp(min=1e-30)).item()


def compare(bench, mine, results, refused):
    """Returns (errors, distances) by runner, and drops peers whose results are wrong from `results`.

    Raises Wrong if attune's result is wrong. The error against float64 decides; without it, the first peer does."""
    errors, distances = {}, {}
    for name, result in {**mine, **results}.items():
        error = bench.sample.error(result) if bench.sample else None
        if error is not None:
            errors[name] = error
            if not error < bench.most_apart:
                if name in mine:
                    raise Wrong(f"{name}: its error against float64 is {error:.3g} of the norm")
                refused[name] = f"its error against float64 is {error:.3g} of the norm"
    first = next(iter(mine.values()))
    for name in [name for name in results if name not in refused]:
        distances[name] = distance(first, results[name])
        if not distances[name] < 2 * bench.most_apart:
            if name not in errors:
                raise Wrong(f"{next(iter(mine))} and {name} differ by {distances[name]:.3g} of the norm")
            refused[name] = f"its result is {distances[name]:.3g} of the norm apart"
    for name in [name for name in results if name in refused]:
        del results[name]
        errors.pop(name, None)
    return errors, distances


def copied(result):
    return tuple(x.clone() for x in result) if isinstance(result, tuple) else result.clone()


def measured(bench, take_turns, rounds):
    """Returns the row of a point. take_turns(samplers, rounds) returns samples by runner's name."""
    refused = {}
    mine = {label: copied(bench.result(label, called(bench, run))) for label, run in bench.ours.items()}
    runners, results = built(bench, bench.makers, refused)
    errors, distances = compare(bench, mine, results, refused)
    if not results and bench.last_resort:
        runners, results = built(bench, bench.last_resort, refused)
        more, distances = compare(bench, mine, results, refused)
        errors.update(more)
    del mine
    runners = {**bench.ours, **{name: runners[name] for name in results}}
    peers = list(results)
    results.clear()
    samplers = sampled(bench, runners, refused)
    samples, verdict = judged(lambda count: take_turns(samplers, count), list(bench.ours),
                              [name for name in peers if name in samplers], rounds)
    if "default_over_tuned" in verdict and same_kernel(
            bench.plans["tuned"], bench.plans["default"]):
        verdict["default_over_tuned"] = 1.0  # one kernel: a measured difference is noise
    return {
        "problem": bench.problem, "mode": bench.mode, "timings": medians(samples), **verdict, "errors": errors,
        "distances": distances, "plans": bench.plans, **({"refused": refused} if refused else {})}


def sampled(bench, runners, refused):
    """Returns samplers. A peer that cannot be captured as a graph is refused with its reason."""
    samplers = {}
    for name, run in runners.items():
        try:
            samplers[name] = bench.sampler(run)
        except Exception as error:
            if name in bench.ours:
                raise
            refused[name] = first_line(error)
    return samplers
