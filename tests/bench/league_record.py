# SPDX-License-Identifier: Apache-2.0
"""The league's result file and its statistics. Nothing here needs a device or PyTorch.

The file holds runs, oldest first, and is only added to: a run that failed or was cut short stays. A run has
    number, commit, date, seed, target, options    what was measured, and on which draw; target is cuda or cpu
    calls                                          date, command and facts of each call of league.py
    draw, rows, tunes                              points, results and tuning of each kind
    attempts                                       how often each point was begun; one that ends the process is tried
                                                   twice
    repeats                                        points that were timed again since a later call had another device
The first run that measured a kind for a commit counts; later ones are repeats.
"""
import collections
import json
import math
import statistics
from pathlib import Path

import publish

SCHEMA = "attune.bench.league.1"
LEAST_RATIO = 0.97  # a point below it is timed again
AGAIN_ROUNDS = 5
MOST_ATTEMPTS = 2
GONE = "the process ended while it measured this point"


def load(path):
    """Returns the file's content, or an empty one if there is no file. Raises ValueError for a file of another kind."""
    if not Path(path).exists():
        return {"schema": SCHEMA, "runs": []}
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    if found.get("schema") != SCHEMA:
        raise ValueError(f"{path}: its schema is {found.get('schema')!r}; must be {SCHEMA!r}")
    return found


def save(path, record):
    """Replaces the file atomically, with numbers of four digits. Raises ValueError if that would lose a run or a result
    that the file has."""
    record = publish.rounded(record)
    lost = lost_of(load(path), record)
    if lost:
        raise ValueError(f"{path} has {lost}, which the new content lacks; must keep all runs and results")
    part = Path(f"{path}.part")
    part.write_text(json.dumps(record, indent=None, separators=(",", ":")), encoding="utf-8")
    part.replace(path)


def lost_of(older, newer):
    """Returns a description of a run or a row that only `older` has; None if `newer` has all."""
    if len(newer["runs"]) < len(older["runs"]):
        return f"{len(older['runs'])} runs"
    for before, after in zip(older["runs"], newer["runs"]):
        if (before["commit"], before["date"], before["seed"]) != (after["commit"], after["date"], after["seed"]):
            return f"run {before['number']} of commit {before['commit']}"
        for kind, rows in before["rows"].items():
            if after["rows"].get(kind, [])[:len(rows)] != rows:
                return f"rows of {kind} in run {before['number']}"
    return None


def open_run(record, commit, date, seed, target, options, kinds):
    """Returns the run to go on with: the last one, if it is of this commit, target and options, and one of `kinds` has
    points left or was not begun. Otherwise adds a run. `date` and `seed` are used for a new run alone: a run that goes
    on past midnight keeps its draw."""
    runs = record["runs"]
    last = runs[-1] if runs else None
    if last and (last["commit"], last["target"], last["options"]) == (commit, target, options) and any(
            kind not in last["draw"] or left_of(last, kind) for kind in kinds):
        return last
    runs.append({
        "number": len(runs) + 1, "commit": commit, "date": date, "seed": seed, "target": target, "options": options,
        "calls": [], "compiled": [], "draw": {}, "rows": {}, "tunes": {}, "attempts": {}, "repeats": []})
    return runs[-1]


def counts(record, run, kind):
    """True for the first run of a commit and target that began the kind."""
    first = next(one for one in record["runs"]
                 if (one["commit"], one["target"]) == (run["commit"], run["target"]) and kind in one["draw"])
    return first is run


def left_of(run, kind):
    """Returns the points of a kind without a result, in the draw's order."""
    done = {row["point"] for row in run["rows"].get(kind, [])}
    return [point for point in run["draw"][kind] if point["name"] not in done]


def begin(run, point):
    """Notes that a point is begun. Returns False, and adds a failed row, if it has ended the process before."""
    key = f"{point['kind']} {point['name']}"
    run["attempts"][key] = run["attempts"].get(key, 0) + 1
    if run["attempts"][key] > MOST_ATTEMPTS:
        add(run, point, {"failed": GONE})
        return False
    return True


def add(run, point, row):
    """Adds a point's result."""
    row = {"point": point["name"], "stratum": point["stratum"], "model": point["model"], **row}
    run["rows"].setdefault(point["kind"], []).append(row)


def forget(run, point):
    """Takes back an attempt that a time limit ended, which says nothing about the point."""
    run["attempts"][f"{point['kind']} {point['name']}"] -= 1


def paired(over, under):
    """Returns the median over rounds of over / under."""
    return statistics.median(a / b for a, b in zip(over, under))


def over_best(samples, ours, peers):
    """Returns (ratio, peer): the speed of `ours` over that of its fastest peer; (None, None) without peers."""
    ratios = {peer: paired(samples[peer], samples[ours]) for peer in peers if peer in samples}
    return min(((ratio, peer) for peer, ratio in ratios.items()), default=(None, None))


def judged(measure, ours, peers, rounds):
    """Returns (samples, verdict). measure(rounds) returns samples in us by runner's name, taken in turns.

    The verdict has, for each name of `ours`, its speed over that of the best peer. A ratio below LEAST_RATIO is timed
    in AGAIN_ROUNDS further rounds, and their median counts, whatever it is."""
    samples, verdict = measure(rounds), {}
    ratios = {name: over_best(samples, name, peers) for name in ours}
    again = [name for name, (ratio, _) in ratios.items() if ratio is not None and ratio < LEAST_RATIO]
    if again:
        later = measure(AGAIN_ROUNDS)
        verdict["first"] = {name: ratios[name][0] for name in again}
        ratios.update({name: over_best(later, name, peers) for name in again})
    verdict["over_best_peer"] = {name: ratio for name, (ratio, _) in ratios.items() if ratio is not None}
    verdict["best_peer"] = {name: peer for name, (_, peer) in ratios.items() if peer}
    if {"tuned", "default"} <= set(ours):
        verdict["default_over_tuned"] = paired(samples["tuned"], samples["default"])
    return samples, verdict


def medians(samples):
    """Returns median, lowest and highest time of each runner."""
    return {name: {"median_us": statistics.median(values), "min_us": min(values), "max_us": max(values),
                   "samples": len(values)} for name, values in samples.items()}


def geomean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def quantile(values, share):
    """Returns a quantile with linear interpolation between neighbours; None without values."""
    if not values:
        return None
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def ratios_summary(named):
    """Returns statistics of ratios, given as (point, ratio)."""
    values = [ratio for _, ratio in named]
    below = sorted((ratio, point) for point, ratio in named if ratio < 1)
    return {"points": len(values), "geomean": geomean(values), "quantile_5": quantile(values, 0.05),
            "lowest": min(values, default=None), "below_1": {point: ratio for ratio, point in below}}


def errors_summary(rows):
    """Returns the median and the largest error against float64, by op, dtype and mode, of each runner."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        for name, error in row.get("errors", {}).items():
            found[row["mode"]][name].append(error)
    return {mode: {name: {"median": statistics.median(errors), "largest": max(errors), "points": len(errors)}
                   for name, errors in names.items()} for mode, names in found.items()}


def summary(rows, tune=None):
    """Returns the statistics of one kind: speed over the best peer for tuned and default kernels, default over tuned,
    tuning's seconds, errors, and the failed points with their reasons. Failed points are in no ratio."""
    measured = [row for row in rows if "failed" not in row]
    found = {"drawn": len(rows), "failed": {row["point"]: row["failed"] for row in rows if "failed" in row},
             "without_peer": [row["point"] for row in measured if not row["over_best_peer"]]}
    for label in ("tuned", "default"):
        named = [(row["point"], row["over_best_peer"][label]) for row in measured if label in row["over_best_peer"]]
        if named:
            found[label] = ratios_summary(named)
    of_tuned = [row["default_over_tuned"] for row in measured if "default_over_tuned" in row]
    if of_tuned:
        found["default_over_tuned"] = {"geomean": geomean(of_tuned), "lowest": min(of_tuned)}
    tunes = [one for one in (tune or {}).values() if one["time_s"] > 0]
    if tunes:
        found["tune_s"] = {"problems": len(tunes), "mean": statistics.fmean(one["time_s"] for one in tunes),
                           "largest": max(one.get("shape_s", 0) for one in tunes)}
    return {**found, "errors": errors_summary(measured)}


def summary_lines(kind, found):
    """Returns what is printed of a kind."""
    lines = [f"{kind}: {found['drawn']} points, {len(found['failed'])} failed, {len(found['without_peer'])} without a "
             "peer"]
    for label in ("tuned", "default"):
        one = found.get(label)
        if one:
            lines.append(f"  {label} over the best peer: geomean {one['geomean']:.3f}, 5 % quantile "
                         f"{one['quantile_5']:.3f}, lowest {one['lowest']:.3f}, below 1.00: {len(one['below_1'])}")
            lines += [f"    {ratio:.3f}  {point}" for point, ratio in one["below_1"].items()]
    if "default_over_tuned" in found:
        one = found["default_over_tuned"]
        lines.append(f"  default over tuned: geomean {one['geomean']:.3f}, lowest {one['lowest']:.3f}")
    if "tune_s" in found:
        one = found["tune_s"]
        lines.append(f"  tuning: {one['mean']:.1f} s a problem, at most {one['largest']:.1f} s")
    for mode, names in found["errors"].items():
        lines.append(f"  error against float64, {mode}: " + ", ".join(
            f"{name} {one['median']:.1e} (largest {one['largest']:.1e})" for name, one in names.items()))
    return lines + [f"  failed: {point}: {reason}" for point, reason in found["failed"].items()]


def published(record):
    """Returns the record as publish.py takes it: the newest run's facts first, every run with its kinds."""
    runs = []
    for run in record["runs"]:
        kinds = {
            kind: {"counts": counts(record, run, kind), "left": len(left_of(run, kind)), "summary": summary(
                rows, run["tunes"].get(kind)), "rows": rows} for kind, rows in run["rows"].items()}
        left_out = ("draw", "rows", "tunes", "attempts", "compiled")
        runs.append({**{key: one for key, one in run.items() if key not in left_out},
                     "kinds": kinds})
    newest = record["runs"][-1]
    facts = newest["calls"][-1]["facts"] if newest["calls"] else {}
    return {**facts, "commit": newest["commit"], "date": newest["date"], "runs": runs}


def publish_part(part, record):
    """Puts the league's record into results/league.json as a part. Runs that were published before and that the record
    lacks stay, ahead of its own: no run is lost."""
    path = publish.RESULTS / "league.json"
    older = publish.untabled(json.loads(path.read_text())).get(part, {"runs": []}) if path.exists() else {"runs": []}
    result = published(record)
    has = {(run["commit"], run["number"]) for run in result["runs"]}
    kept = [run for run in older["runs"] if (run["commit"], run["number"]) not in has]
    publish.publish("league", part, {**result, "runs": kept + result["runs"]})
