#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures which knobs never win: how much slower a family's kernels are, on drawn problems, if a knob keeps one value.

    python3 tests/bench/cuda/knob_regret.py PROGRAM --out FILE [--family F ...] [--knob K] [--count 32] [--seed 1]
        [--seconds S] [--rule KNOB=VALUE ...] [--target cuda] [--best 4] [--check 1] [--commit HASH]
    python3 tests/bench/cuda/knob_regret.py PROGRAM --list sm_90a [--family F ...]
        prints the problems, and numbers of candidates; needs no device

PROGRAM is bench_knob_regret, whose source is beside this file and says what a rule is. For each problem it races the
default, the best predicted configs with the value that stays, the best with each other value, and these again with
the value that stays. The fastest with and without the knob then race again.

FILE gets a row for each problem as soon as it is measured. A further call adds the problems that FILE lacks, so a run
may be cut at any time; --seconds cuts it. `together` is the regret if all rules of the family hold."""
import argparse
import collections
import datetime
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases  # noqa: E402
import publish  # noqa: E402

MOST_US = 20000
MOST_BYTES = 4e9
GAIN = 0.005  # a knob that gains less on every problem may go
LINES = 12  # drawn problems for each one that is measured, since families refuse some, and rules may have no choice

# family -> rules, draw, FLOP/s at least reached
Family = collections.namedtuple("Family", "rules draw rate")


def log_uniform(rng, low, high):
    return round(low * (high / low)**rng.random())


def drawn_case(spec, shape, dims, dtypes, rows=(16, 16384), row_share=0, self_share=0.5, causal_share=0.5):
    """Returns a Case. Random numbers of `spec` decide about the kernel, numbers of `shape` about lengths and heads."""
    head_dim, dtype = spec.choice(dims), spec.choice(dtypes)
    ratio = spec.choice((1, 1, 2, 4, 5, 7, 8, 16))
    causal = spec.random() < causal_share
    window = log_uniform(spec, 64, 4096) if causal and spec.random() < 0.3 else -1
    rows = 1 if shape.random() < row_share else log_uniform(shape, *rows)
    is_self = shape.random() < self_share
    keys = rows if is_self else log_uniform(shape, max(rows, 64) if causal else 64, 65536)
    heads_kv = log_uniform(shape, 1, max(1, 48 // ratio))
    return cases.Case("", log_uniform(shape, 1, 48), rows, keys, ratio * heads_kv, heads_kv, head_dim, causal, window,
                      dtype)


def more_of(rng, choices):
    """Returns one of the texts that `choices` gives probabilities, or "". """
    at = rng.random()
    for text, share in choices.items():
        if at < share:
            return "," + text
        at -= share
    return ""


def prefill(dims, dtypes, more=None, **shares):
    def draw(spec, shape):
        case = drawn_case(spec, shape, dims, dtypes, **shares)
        return case, case.flops, case.problem + more_of(spec, more or {})
    return draw


def gradients(spec, shape):
    case = drawn_case(spec, shape, (64, 80, 96, 128, 192, 256), ("bf16", "fp16"), self_share=0.7)
    more = more_of(spec, {"deterministic=1": 0.2, "accumulate=1": 0.2, "dropout=0.1,deterministic=1": 0.15,
                          "dropout=0.1": 0.1, "gradients=kv": 0.1})
    return case, 2.5 * case.flops, f"op=attention_backward,{case.problem}{more}"


def caches(rows, row_share, pages, dtypes, more):
    def draw(spec, shape):
        case = drawn_case(spec, shape, (64, 96, 128, 256), dtypes, rows, row_share, self_share=0, causal_share=1)
        page = spec.choice(pages)
        text = f"op=attention_kvcache,{case.problem}{f',page_size={page}' if page else ''}{more_of(spec, more)}"
        return case, case.flops, text
    return draw


CACHED = ("bf16", "fp16", "bf16", "bf16,dtype_kv=e4m3", "bf16,dtype_kv=int8")
MASKED = {"softcap=30": 0.08, "dropout=0.1": 0.08, "alibi=1": 0.08}
FAMILIES = {
    "prefill_sm90_fp8": Family(
        ("kv_splits=1", ), prefill((64, 96, 128, 256), ("e4m3,accuracy=accurate", "e4m3,accuracy=fast"),
                                            self_share=0.3), 5e14),
    "prefill_sm80": Family(("share_kv=0", ),
                           prefill((32, 64, 80, 96, 128, 160, 192, 256), ("bf16", "fp16"), MASKED), 2e14),
    "prefill_sm80_tf32": Family(
        ("share_kv=0", ), prefill((32, 64, 96, 128, 256), ("fp32,accuracy=fast", "fp32,accuracy=split"), MASKED), 4e13),
    "decode_sm80": Family(
        ("keys=16", "warps=8", "blocks_per_sm=1"),
        caches((2, 16), 0.6, (0, 1, 16, 16, 64, 128), CACHED,
               {"batch_invariant=1": 0.1, "softcap=30": 0.1}), 5e13),
    "cache_sm90": Family(("row_max=0", "kv_ring=0"),
                         caches((16, 4096), 0, (0, 16, 64, 128), ("bf16", "fp16"), {"softcap=30": 0.1}), 3e14),
    "backward_sm90": Family(("key_block_n=128,64,192", ), gradients, 2e14),
    "backward_sm80": Family(("blocks_per_sm=1", "key_blocks_per_sm=1", "split_kv=0/1"), gradients, 8e13),
    "prefill_cpu": Family(("schedule=1", "unroll=4"), prefill((64, 80, 128), ("fp32", "bf16")), 2e10),
    "backward_cpu": Family(("unroll=4", "block_n=128"), prefill((64, 80, 128), ("fp32", "bf16")), 2e10)}
CUDA = [name for name in FAMILIES if not name.endswith("_cpu")]


def bytes_of(case):
    return 4 * case.batch * case.head_dim * (2 * case.seqlen_q * case.heads_q + 2 * case.seqlen_kv * case.heads_kv)


def problems_of(name, count, seed):
    """Returns `count` problems of a family. Two neighbours often share their kernels, and differ in lengths and heads.
    """
    family, found, number = FAMILIES[name], [], 0
    prefix = "op=attention_backward," if name == "backward_cpu" else ""
    while len(found) < count:
        spec, shape = (random.Random(f"{seed} {name} {one}") for one in (f"spec {len(found) // 2}", number))
        number += 1
        case, flops, text = family.draw(spec, shape)
        if flops <= family.rate * MOST_US * 1e-6 and bytes_of(case) <= MOST_BYTES:
            found.append(prefix + text)
    return found


def rules_of(name, arguments):
    rules = arguments.rule or FAMILIES[name].rules
    return [rule for rule in rules if arguments.knob in (None, rule.partition("=")[0])]


def lines_of(command, problems, seconds=None):
    """Yields the objects that the program prints about these problems, at most for so long."""
    with tempfile.TemporaryFile("w+") as file:
        file.write("\n".join(problems) + "\n")
        file.seek(0)
        with subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, text=True) as process:
            timer = threading.Timer(seconds or 1e6, process.terminate)
            timer.start()
            try:
                yield from map(json.loads, filter(lambda line: line.endswith("\n"), process.stdout))
            finally:
                timer.cancel()


def row_of(line):
    """Returns a row without the configs that say little."""
    row = {"problem": line["problem"], "candidates": line["candidates"], "failed": len(line["failed"]),
           "failure": next(iter(line["failed"].values()), ""), "rules": {}}
    for rule, found in line["rules"].items():
        is_gain = found["regret"] is None or found["regret"] > GAIN
        kept = ("regret", "kept_us", "other_us", "rounds") + (("kept", "other") if is_gain else ())
        row["rules"][rule] = {key: value for key, value in found.items() if key in kept}
    return row


def summary(rows):
    """Returns, for each rule, on how many problems the knob gains, and the worst and mean regret."""
    table = {}
    for rule in dict.fromkeys(rule for row in rows for rule in row["rules"]):
        having = [row for row in rows if rule in row["rules"]]
        regrets = [row["rules"][rule]["regret"] for row in having]
        regrets = [float("inf") if regret is None else regret for regret in regrets]  # None: nothing else works
        worst = max(range(len(having)), key=regrets.__getitem__)
        finite = [regret for regret in regrets if regret != float("inf")]
        table[rule] = {
            "problems": len(having), "gains": sum(regret > GAIN for regret in regrets),
            "only_others_work": len(regrets) - len(finite), "worst": max(finite, default=0),
            "mean": statistics.mean(finite or [0]), "worst_problem": having[worst]["problem"]}
    return table


def print_summary(name, table):
    for rule, row in table.items():
        print(f"{name:18s} {rule:24s} {row['problems']:3d} problems, {row['gains']:2d} gain over 0.5 %, worst "
              f"{100 * row['worst']:5.2f} %, mean {100 * row['mean']:5.2f} %" +
              (f", {row['only_others_work']} only without the rule" if row["only_others_work"] else ""))
        if row["gains"]:
            print(f"{'':19s}worst: {row['worst_problem']}")


def measure(name, arguments, result):
    """Measures the problems that the result lacks, and writes it after each."""
    rules = rules_of(name, arguments)
    if not rules:
        return
    part = result["families"].setdefault(name, {"summary": {}, "errors": {}, "rows": []})
    done = {row["problem"]: row for row in part["rows"]}
    least = min(sum(rule in row["rules"] for row in part["rows"]) for rule in rules)
    problems = [one for one in problems_of(name, LINES * arguments.count, arguments.seed) if one not in done]
    if least >= arguments.count:
        problems = []
    command = [arguments.program, "--target", arguments.target, "--count", str(arguments.count - least), "--best",
               str(arguments.best), "--check", str(arguments.check), name, *rules]
    for line in lines_of(command, problems, arguments.seconds) if problems else ():
        if "device" in line:
            result.update(line)
        elif "error" in line:
            part["errors"][line["problem"]] = line["error"]
        else:
            part["rows"].append(row_of(line))
            part["summary"] = summary(part["rows"])
        arguments.out.write_text(publish.compact_json(publish.rounded(result)) + "\n", encoding="utf-8")
    print_summary(name, part["summary"])
    for problem, error in part["errors"].items():
        print(f"{'':19s}failed: {problem}: {error}")


def print_candidates(name, arguments):
    rules = rules_of(name, arguments)
    command = [arguments.program, "--list", arguments.list, "--count", str(arguments.count), "--best",
               str(arguments.best), name, *rules]
    found = collections.defaultdict(list)
    for line in lines_of(command, problems_of(name, LINES * arguments.count, arguments.seed)):
        found[line["problem"]].append(line["kept"])
    print(f"{name}: {len(found)} problems, {sum(map(len, found.values()))} candidates; of these break "
          f"{', '.join(rules)}:")
    for problem, kept in found.items():
        print(f"  {len(kept):3d}, {', '.join(str(len(kept) - sum(one)) for one in list(zip(*kept))[:-1])}: {problem}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", metavar="ARCH")
    parser.add_argument("--family", action="append", choices=list(FAMILIES))
    parser.add_argument("--knob")
    parser.add_argument("--rule", action="append", help="in place of the family's rules")
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--best", type=int, default=4)
    parser.add_argument("--check", type=int, default=1, choices=(0, 1), help="0: compares no results with the oracle's")
    parser.add_argument("--seconds", type=float, help="for each family")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--commit", default=publish.commit())
    arguments = parser.parse_args()
    for name in arguments.family or CUDA:
        if arguments.list:
            print_candidates(name, arguments)
            continue
        if arguments.out.exists():
            result = json.loads(arguments.out.read_text(encoding="utf-8"))
        else:
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            result = {"date": now, "commit": arguments.commit, "seed": arguments.seed, "families": {}}
        measure(name, arguments, result)


if __name__ == "__main__":
    main()
