#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a store of any size with invented times, for tests of programs that read stores: views, reports, limits by wall
clock.

Usage: sample_store.py --attune PROGRAM --store FILE [--keys N] [--trials N] [--faster F] [--noise N] [--hostile]

Equal arguments give equal rows. --trials is per key. Half of the keys have an outdated template text. --hostile
puts markup into every text.
"""
import argparse
import json
import math
import random
import subprocess
import tempfile

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&\u2028"
KNOBS = {
    "block_m": [64, 128, 192, 256], "block_n": [64, 96, 128, 176, 256], "kv_slots": [2, 3, 4], "overlap": [0, 1],
    "ping_pong": [0, 1], "kv_splits": [1]}
POLICY = "v2 cold-l2 interleaved, final under load"


def device(hostile):
    return {
        "arch": "sm_90", "sm_count": 132, "shared_bytes_per_block": 232448, "registers_per_sm": 65536,
        "l2_bytes": 50 << 20, "memory_bus_bits": 6144, "memory_clock_khz": 3201000, "slice": "",
        "name": "NVIDIA H200" + hostile}


def timing(median, samples=30):
    return {
        "median_us": median, "lo_us": median * 0.995, "hi_us": median * 1.006, "min_us": median * 0.98,
        "samples": samples, "sm_clock_mhz": 1830}


def time_of(config, flops):
    """A made-up surface with one valley: 128 x 128 to 176, three stages, overlap."""
    cost = 1 + 0.25 * abs(math.log2(config["block_m"] / 128)) + 0.2 * abs(math.log2(config["block_n"] / 150))
    cost *= 1 + 0.03 * abs(config["kv_slots"] - 3) + 0.08 * (1 - config["overlap"]) + 0.02 * config["ping_pong"]
    return flops / 640e6 * cost + 6


def text_of(config):
    return ",".join(f"{knob}={value}" for knob, value in config.items())


def rows_of_key(number, arguments, digest, rng):
    hostile = HOSTILE if arguments.hostile else ""
    head_dim, mask = [64, 128, 256][number % 3], ["none", "causal_bottom_right"][number // 3 % 2]
    seqlen, batch = 256 << (number // 6 % 7), 1 + number // 42
    flops = 4.0 * batch * 32 * seqlen * seqlen * head_dim / (2 if "causal" in mask else 1)
    stale = number % 2 and number > 1
    key = {
        "problem": f"op=prefill,dtype_q=bf16,dtype_kv=bf16,dtype_o=bf16,head_dim_qk={head_dim},head_dim_v={head_dim},"
                   f"gqa_ratio=4,mask={mask},"
        "window=-1:-1", "shape": f"batch={batch},seqlen_q={seqlen},seqlen_kv={seqlen},heads=32/8",
        "device": device(hostile), "policy": POLICY, "driver": "550.54" if stale else "580.126",
        "power_limit_w": 600 if number == 0 else 700, "effort": "normal", "arch": "sm_90a", "toolchain": {
            "template": "prefill_sm90", "template_digest": "0" * 32 if stale else digest, "compiler": "nvrtc 13.0",
            "options": "-std=c++20" + hostile}}
    created = f"2026-{4 if stale else 11:02}-{1 + number % 20:02}T12:00:{number % 60:02}"
    configs = [{knob: rng.choice(values) for knob, values in KNOBS.items()} for _ in range(arguments.trials)]
    configs[0] = dict(block_m=128, block_n=128, kv_slots=2, overlap=1, ping_pong=1, kv_splits=1)
    configs = list({text_of(one): one for one in configs}.values())
    rows, good = [], []
    for place, config in enumerate(configs):
        row = {
            **key, "kind": "trial", "config": text_of(config), "is_default": place == 0,
            "status": "ok", "reason": "", "error_max": 0.3, "error_mean": 0.01, "shared_bytes": 98304, "timing": timing(
                math.nan, 0), "created": f"{created}.{place % 9 + 1:03}Z", "info": {
                    "registers": 168, "static_shared_bytes": 0, "stack_bytes": 0, "spill_store_bytes": 0,
                    "spill_load_bytes": 0, "warnings": []}}
        if config["block_m"] * config["block_n"] >= 192 * 256 and place:
            row.update(status="compile_failed", reason=f"ptxas spills 128 bytes{hostile}\nsecond line",
                       error_max=math.nan, error_mean=math.nan)
        else:
            row["timing"] = timing(time_of(config, flops) * rng.uniform(0.99, 1.03) * arguments.faster)
            good.append(row)
        rows.append(row)
    good.sort(key=lambda row: row["timing"]["median_us"])
    for row in good[:3] + rows[:1]:
        row["created"] = created + ".000Z"  # trials of the final
    best = good[0]
    default_timing = rows[0]["timing"]
    if arguments.noise:  # a tie, whose interval is wide
        median = best["timing"]["median_us"]
        best["timing"] = {**best["timing"], "hi_us": median * (1 + arguments.noise)}
        default_timing = {**best["timing"], "median_us": median * (1 + 3e-4 * number)}
    rows.append({
        **key, "kind": "winner", "config": best["config"], "timing": best["timing"],
        "default_config": rows[0]["config"], "default_timing": default_timing, "default_is_winner": best is rows[0],
        "candidates": len(good), "complete": True, "why": "fastest by 1.0 %" + hostile, "created": created + ".000Z",
        "pinned": False})
    return rows


def plain(value):
    """Replaces NaN by null, as in the store's JSON lines."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def make(arguments):
    version = subprocess.run([arguments.attune, "version", "--json"], capture_output=True, text=True, check=True).stdout
    digest = next(one["digest"] for one in json.loads(version)["templates"] if one["name"] == "prefill_sm90")
    rng = random.Random(1)
    rows = [row for number in range(arguments.keys) for row in rows_of_key(number, arguments, digest, rng)]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(json.dumps({"kind": "attune_store", "rows": len(rows), "schema": 7}) + "\n")
        file.writelines(json.dumps(plain(row)) + "\n" for row in rows)
        file.flush()
        subprocess.run([arguments.attune, "db", "import", file.name, "--store", arguments.store], check=True,
                       stdout=subprocess.DEVNULL)
    return len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attune", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--keys", type=int, default=12)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--faster", type=float, default=1.0, help="factor of every time")
    parser.add_argument("--noise", type=float, default=0.0, help="width of winners' intervals, as a part of the median")
    parser.add_argument("--hostile", action="store_true")
    print(make(parser.parse_args()), "rows")


if __name__ == "__main__":
    main()
