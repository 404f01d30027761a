# SPDX-License-Identifier: Apache-2.0
"""Times whole forward passes of transformers models on attune against sdpa and other installed implementations, and
checks their logits and generated tokens.

    python3 tests/bench/models/transformers_models.py --out OUT/transformers_models.json [--only Llama] [--check]
        [--seconds 200]
    ATTUNE_CAPTURE=problems.jsonl python3 tests/bench/models/transformers_models.py --once        # then: attune tune
        --captured problems.jsonl

Sizes are from published configs, weights are random, and layers are cut (transformers_configs.py). One process; samples
of all implementations of a case are interleaved in random order. A sample is the device time, by CUDA events, of
forward passes called from Python one after the other. Nothing is captured, so waiting for the host counts. `without` is
the same model with attention left out (its output is uninitialized); it shows the share of attention. --check compares
logits in fp32 and bf16, and 64 greedy tokens in fp32, with dynamic and static caches and left padding. ATTUNE_STORE may
hold tuned winners.
"""
import argparse
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import timing  # noqa: E402
import transformers_configs as configs  # noqa: E402
import transformers_host as host  # noqa: E402
import transformers_peers as peers  # noqa: E402

TOKENS, PROMPT = 64, 300


def why(error):
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"


def runner(model, implementation, given):
    """Returns a forward pass on this implementation; raises if the implementation is not available."""
    def run():
        model.set_attn_implementation(implementation)
        with torch.inference_mode():
            return model(**given)
    run()
    if model.config._attn_implementation != implementation:
        raise ValueError(f"{implementation} was not used; the model has {model.config._attn_implementation}")
    torch.cuda.synchronize()
    return run


def sampler(model, implementation, run, sample_us):
    def timed(calls):
        model.set_attn_implementation(implementation)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            run()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1000.0 / calls
    for _ in range(2):
        one = timed(1)
    calls = max(1, min(50, round(sample_us / one)))
    return lambda: timed(calls)


def last(output):
    return (output.logits if hasattr(output, "logits") else output.last_hidden_state).float()


def distance(one, other):
    return ((one - other).norm() / other.norm()).item()


def time_case(case, model, arguments, rng, until, failures):
    given = configs.inputs(case, torch.bfloat16, "cuda")
    runners, outputs = {}, {}
    for name in ("attune", *case.peers, "without"):
        if name in arguments.missing:
            continue
        if name == "flex_attention" and time.monotonic() > until - arguments.flex_seconds:
            failures.append({"case": case.name, "peer": name, "error": "left out: the time given was used up"})
            continue
        try:
            runners[name] = runner(model, name, given)
            outputs[name] = last(runners[name]())[:, -1:]
        except Exception as error:  # a missing or failed peer is reported; the run goes on
            failures.append({"case": case.name, "peer": name, "error": why(error)})
            torch.cuda.empty_cache()
    samplers = {name: sampler(model, name, run, arguments.sample_us) for name, run in runners.items()}
    samples = timing.interleaved_samples(samplers, arguments.rounds, rng)
    timings = timing.medians_us(samples)
    found = [name for name in runners if name in case.peers]
    row = {
        "case": case.name, "model": case.model, "layers": case.layers, "seqlen": case.seqlen, "batch": case.batch,
        "padded": case.padded, "timings": timings, "distance_to_attune": {
            name: distance(outputs["attune"], outputs[name])
            for name in found}, "attention_share": {
                name: 1.0 - timing.paired_ratio(samples["without"], samples[name])
                for name in runners if name != "without"}}
    if found:
        best = min(found, key=lambda name: timings[name]["median_us"])
        row.update(best_peer=best, over_best_peer=timing.paired_ratio(samples[best], samples["attune"]))
    if "sdpa" in found:
        row["over_sdpa"] = timing.paired_ratio(samples["sdpa"], samples["attune"])
    return row


def print_row(row):
    times = "  ".join(f"{name} {of['median_us'] / 1000:8.3f} ms" for name, of in row["timings"].items())
    ratios = "  ".join(f"{name} {row[name]:.3f}" for name in ("over_sdpa", "over_best_peer") if name in row)
    share = row["attention_share"].get("attune")
    print(
        f"{row['case']:38s} {times}  {ratios}  attention {share:.2f} of attune's" if share is not None else row["case"],
        flush=True)


def generated(model, implementation, given, **choices):
    model.set_attn_implementation(implementation)
    return model.generate(**given, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, disable_compile=True,
                          **choices)


def check_model(name, layers):
    """Compares one model's logits and tokens with its reference implementation on two sequences, one padded."""
    reference = "sdpa" if "sdpa" in next(case.peers for case in configs.CASES if case.model == name) else "eager"
    case = configs.Case(name, layers, PROMPT, 2,
                        padded=0.3 if name not in ("vit-large-patch16-384", "whisper-large-v3") else 0.0)
    if name.startswith("whisper"):
        case = configs.Case(name, layers, 1500, 2)
    row = {"model": name, "layers": layers, "reference": reference, "prompt": PROMPT}
    model = configs.build(name, layers, torch.float32, "cuda")
    given = configs.inputs(case, torch.float32, "cuda")
    with torch.inference_mode():
        outputs = {each: last(runner(model, each, given)())[:, -1] for each in (reference, "attune")}
        row["fp32_distance"] = distance(outputs["attune"], outputs[reference])
        if name in configs.DECODERS:
            prompt = {key: given[key] for key in ("input_ids", "attention_mask")}
            for cache in ("dynamic", "static"):
                ours, theirs = (generated(model, each, prompt, cache_implementation=cache)
                                for each in ("attune", reference))
                row[f"same_tokens_{cache}"] = torch.equal(ours, theirs)
        model.to(torch.bfloat16)
        half = {
            key: value.to(torch.bfloat16) if value.is_floating_point() else value
            for key, value in given.items() if torch.is_tensor(value)}
        half = {**given, **half}
        row["bf16_distance_to_fp32"] = {
            each: distance(last(runner(model, each, half)())[:, -1], outputs[reference])
            for each in (reference, "attune")}
    return row


def groups(arguments):
    """Groups cases by model, so that each model is built once."""
    found = {}
    for case in configs.CASES:
        if arguments.only in case.name:
            found.setdefault((case.model, case.layers), []).append(case)
    return found


def run_once(arguments):
    for (name, layers), cases in groups(arguments).items():
        model = configs.build(name, layers, torch.bfloat16, "cuda")
        for case in cases:
            runner(model, "attune", configs.inputs(case, torch.bfloat16, "cuda"))
        del model
        torch.cuda.empty_cache()


def summary(rows):
    result = {}
    for key in ("over_sdpa", "over_best_peer"):
        values = [row[key] for row in rows if key in row]
        if values:
            result[key] = {"geomean": statistics.geometric_mean(values), "worst": min(values)}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="substring of the case's name")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sample-us", type=float, default=20000)
    parser.add_argument("--seconds", type=float, default=1e9,
                        help="start no case or check after this time; the result names those left out")
    parser.add_argument("--flex-seconds", type=float, default=60,
                        help="seconds that must remain before FlexAttention is compiled for a case")
    parser.add_argument("--once", action="store_true", help="run each case once on attune and exit")
    parser.add_argument("--check", action="store_true", help="also check logits and tokens")
    parser.add_argument("--check-layers", type=int, default=2)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    attune.register_transformers()
    arguments.missing = peers.register()
    if arguments.once:
        run_once(arguments)
        return
    until, rng, rows, checks, failures = time.monotonic() + arguments.seconds, random.Random(1), [], [], []
    facts = {
        "schema": "attune.bench.transformers.1", "command": timing.command(),
        **timing.facts(), "attune": attune.version(), "transformers": transformers.__version__,
        "store": "tuned" if os.environ.get("ATTUNE_STORE") else "untuned", "missing_peers": arguments.missing,
        "host": host.costs()}
    print(json.dumps(facts["host"]))

    def write():
        if arguments.out:
            timing.write_result(
                arguments.out,
                {**facts, "summary": summary(rows), "failures": failures, "rows": rows, "checks": checks})

    for (name, layers), cases in groups(arguments).items():
        model = None
        for case in cases:
            if time.monotonic() > until:
                failures.append({"case": case.name, "error": "left out: the time given was used up"})
                continue
            try:
                model = model or configs.build(name, layers, torch.bfloat16, "cuda")
                rows.append(time_case(case, model, arguments, rng, until, failures))
                print_row(rows[-1])
            except Exception as error:  # a failed case is reported; the run goes on
                failures.append({"case": case.name, "error": why(error)})
                print(f"{case.name} failed: {failures[-1]['error']}", flush=True)
            write()
        del model
        torch.cuda.empty_cache()
    for name in dict.fromkeys(case.model for case in configs.CASES if arguments.check and arguments.only in case.name):
        if time.monotonic() > until:
            failures.append({"check": name, "error": "left out: the time given was used up"})
            continue
        try:
            checks.append(check_model(name, arguments.check_layers))
            print(json.dumps(checks[-1]), flush=True)
        except Exception as error:
            failures.append({"check": name, "error": why(error)})
            print(f"check of {name} failed: {failures[-1]['error']}", flush=True)
        write()
        torch.cuda.empty_cache()
    print(json.dumps(summary(rows)))
    for failure in failures:
        print(json.dumps(failure))


if __name__ == "__main__":
    main()
